/* SPDX-License-Identifier: MIT */
#include "lib/test.h"
#include "soft_kit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "lib/rc.h"
#include "lib/seeds.h"

#define TIME_MAX   UINT64_C(1000000000000) /* a run that lasts longer will not end */
#define FRAMES_MAX 5000000u

/*
 * The driver
 */

static void kit_random(void *arg, void *buffer, size_t length)
{
	struct kit *kit = arg;
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)random_next(&kit->random);
}

static void collect_output(struct kit *kit);

static void kit_kick(void *arg)
{
	struct kit *kit = arg;

	kit->kicks++;
	if (kit->eager)
		collect_output(kit);
}

static int driver_wait(void *arg, int fd)
{
	(void)arg;
	(void)fd;
	return -EDEADLK; /* no other thread could end it */
}

static const struct snt__soft_driver driver = {
	.random = kit_random,
	.kick = kit_kick,
	.wait = driver_wait,
};

static void gid_of_end(const struct kit *kit, unsigned end, uint8_t gid[16])
{
	static const uint8_t ipv4[16] = { [10] = 0xff, [11] = 0xff, [12] = 10 };
	static const uint8_t ipv6[16] = { 0xfd, 1 };

	memcpy(gid, kit->opts.ipv6 ? ipv6 : ipv4, 16);
	gid[15] = (uint8_t)end + 1;
}

/*
 * Objects
 */

#define DEFAULT(field, value)              \
	do {                               \
		if (!(field))              \
			(field) = (value); \
	} while (0)

static void fill_opts(struct kit_opts *opts)
{
	DEFAULT(opts->cap.max_send_wr, KIT_DEPTH);
	DEFAULT(opts->cap.max_recv_wr, KIT_DEPTH);
	DEFAULT(opts->cap.max_send_sge, KIT_SGES);
	DEFAULT(opts->cap.max_recv_sge, KIT_SGES);
	DEFAULT(opts->cap.max_inline_data, 64);
	DEFAULT(opts->mtu, IBV_MTU_1024);
	DEFAULT(opts->cqe, 256);
	DEFAULT(opts->access, KIT_ACCESS);
	DEFAULT(opts->reads, 4);
	DEFAULT(opts->dest_reads, 4);
	DEFAULT(opts->timeout, 14);
	DEFAULT(opts->retries, 7);
	DEFAULT(opts->rnr_retries, 7);
}

static void open_device(struct kit *kit, unsigned end)
{
	struct snt__soft_config config = kit->opts.config;
	struct kit_end *e = &kit->end[end];
	uint8_t gid[1][16];

	gid_of_end(kit, end, gid[0]);
	config.name = end == A ? "soft0" : "soft1";
	config.driver = &driver;
	config.driver_arg = kit;
	config.gids = (const uint8_t(*)[16])gid;
	config.gid_count = 1;
	assert_int_equal(snt__soft_device_create(&config, &e->device), 0);
	e->context = snt__soft_device_context(e->device);
}

/* Mapping it anew takes longer than most tests. */
static uint8_t *spare[ENDS];

static uint8_t *take_bytes(void)
{
	uint8_t **from = spare[0] ? &spare[0] : &spare[1];
	uint8_t *bytes = *from;

	if (bytes) {
		*from = NULL;
		memset(bytes, 0, KIT_BYTES);
		return bytes;
	}
	bytes = mmap(NULL, KIT_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(bytes, MAP_FAILED);
	return bytes;
}

static void give_bytes(uint8_t *bytes)
{
	uint8_t **to = spare[0] ? &spare[1] : &spare[0];

	if (*to)
		munmap(bytes, KIT_BYTES);
	else
		*to = bytes;
}

static void open_soft_end(struct kit *kit, unsigned end)
{
	const struct snt_control *control = kit->control;
	struct kit_end *e = &kit->end[end];

	open_device(kit, end);
	assert_int_equal(control->alloc_pd(e->context, &e->pd), 0);
	assert_int_equal(control->create_channel(e->context, &e->channel), 0);
	fcntl(e->channel->fd, F_SETFL, O_NONBLOCK);
	fcntl(e->context->async_fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(control->create_cq(e->context, (int)kit->opts.cqe, NULL,
					    e->channel, 0, &e->cq),
			 0);
	if (kit->opts.srq_depth) {
		struct ibv_srq_init_attr attr = {
			.attr = { .max_wr = kit->opts.srq_depth, .max_sge = KIT_SGES },
		};

		assert_int_equal(control->create_srq(e->pd, &attr, &e->srq), 0);
	}
	e->bytes = take_bytes();
	assert_int_equal(control->reg_mr(e->pd, e->bytes, KIT_BYTES, KIT_ACCESS,
					 &e->mr),
			 0);
	kit_make_qp(kit, end);
}

struct kit *kit_open(const struct kit_opts *opts)
{
	struct kit *kit = calloc(1, sizeof(*kit));

	assert_non_null(kit);
	if (opts)
		kit->opts = *opts;
	fill_opts(&kit->opts);
	kit->control = snt__soft_control();
	kit->last = &kit->first;
	kit->batch = 64;
	open_soft_end(kit, A);
	open_soft_end(kit, B);
	if (!kit->opts.unconnected) {
		kit_connect(kit, A);
		kit_connect(kit, B);
	}
	return kit;
}

static void close_soft_end(struct kit *kit, unsigned end)
{
	const struct snt_control *control = kit->control;
	struct kit_end *e = &kit->end[end];

	if (e->qp)
		assert_int_equal(control->destroy_qp(e->qp), 0);
	if (e->srq)
		assert_int_equal(control->destroy_srq(e->srq), 0);
	if (e->cq)
		assert_int_equal(control->destroy_cq(e->cq), 0);
	if (e->channel)
		assert_int_equal(control->destroy_channel(e->channel), 0);
	if (e->mr)
		assert_int_equal(control->dereg_mr(e->mr), 0);
	if (e->pd)
		assert_int_equal(control->dealloc_pd(e->pd), 0);
	assert_int_equal(snt__soft_device_destroy(e->device), 0);
	give_bytes(e->bytes);
}

void kit_close(struct kit *kit)
{
	while (kit->first) {
		struct kit_frame *frame = kit->first;

		kit->first = frame->next;
		free(frame);
	}
	free(kit->late);
	close_soft_end(kit, A);
	close_soft_end(kit, B);
	free(kit);
}

void kit_make_qp(struct kit *kit, unsigned end)
{
	struct kit_end *e = &kit->end[end];
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.srq = e->srq,
		.cap = kit->opts.cap,
		.sq_sig_all = kit->opts.signal_all,
	};

	assert_int_equal(kit->control->create_qp(e->pd, &attr, &e->qp), 0);
}

static int not_negative(int value)
{
	return value < 0 ? 0 : value;
}

int kit_attr(struct kit *kit, unsigned end, enum ibv_qp_state state,
	     struct ibv_qp_attr *attr)
{
	const struct kit_opts *opts = &kit->opts;

	*attr = (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = not_negative(opts->access),
		.path_mtu = opts->mtu,
		.dest_qp_num = kit->end[!end].qp ? kit->end[!end].qp->qp_num : 0,
		.rq_psn = opts->psn,
		.sq_psn = opts->psn,
		.max_dest_rd_atomic = not_negative(opts->dest_reads),
		.max_rd_atomic = not_negative(opts->reads),
		.min_rnr_timer = 12,
		.timeout = not_negative(opts->timeout),
		.retry_cnt = not_negative(opts->retries),
		.rnr_retry = not_negative(opts->rnr_retries),
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .hop_limit = 64 } },
	};
	gid_of_end(kit, !end, attr->ah_attr.grh.dgid.raw);
	return rc_mask(state);
}

int kit_modify(struct kit *kit, unsigned end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	int mask = kit_attr(kit, end, state, &attr);

	return kit->control->modify_qp(kit->end[end].qp, &attr, mask);
}

void kit_connect(struct kit *kit, unsigned end)
{
	assert_int_equal(kit_modify(kit, end, IBV_QPS_INIT), 0);
	assert_int_equal(kit_modify(kit, end, IBV_QPS_RTR), 0);
	assert_int_equal(kit_modify(kit, end, IBV_QPS_RTS), 0);
}

enum ibv_qp_state kit_state(struct kit *kit, unsigned end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(kit->control->query_qp(kit->end[end].qp, &attr, IBV_QP_STATE,
						&init),
			 0);
	return attr.qp_state;
}

/*
 * The wire
 */

static void count_opcodes(struct kit *kit, const struct kit_frame *frame)
{
	kit->watched[frame->bytes[0]]++;
}

static struct kit_frame *new_frame(struct kit *kit, unsigned from,
				   const struct snt__soft_packet *packet)
{
	unsigned pad = snt__wire_pad(packet->payload_length);
	size_t length = packet->header_length + packet->payload_length + pad, at;
	struct kit_frame *frame = malloc(sizeof(*frame) + length);

	assert_non_null(frame);
	frame->next = NULL;
	frame->to = !from;
	frame->index = kit->frames++;
	frame->path = *packet->path;
	frame->length = length;
	memcpy(frame->bytes, packet->header, packet->header_length);
	at = packet->header_length;
	for (unsigned i = 0; i < packet->payload_count; i++) {
		assert_in_range(packet->payload[i].iov_len, 1, 4096);
		memcpy(frame->bytes + at, packet->payload[i].iov_base,
		       packet->payload[i].iov_len);
		at += packet->payload[i].iov_len;
	}
	assert_int_equal(at, packet->header_length + packet->payload_length);
	memset(frame->bytes + at, 0, pad);
	return frame;
}

static void append_frame(struct kit *kit, struct kit_frame *frame)
{
	*kit->last = frame;
	kit->last = &frame->next;
}

/* All that both ends have to send. */
static void collect_output(struct kit *kit)
{
	static struct snt__soft_packet packets[64];

	for (unsigned end = A; end < ENDS; end++) {
		struct snt__soft_device *device = kit->end[end].device;
		unsigned count;

		do {
			memset(packets, 0xa5, sizeof(packets));
			count = snt__soft_output(device, packets, kit->batch, kit->now);
			for (unsigned i = 0; i < count; i++) {
				struct kit_frame *frame =
					new_frame(kit, end, &packets[i]);

				(kit->watch ? kit->watch : count_opcodes)(kit, frame);
				append_frame(kit, frame);
			}
		} while (count);
	}
	assert_in_range(kit->frames, 0, FRAMES_MAX);
}

/* The bytes are a copy of just that length, so that a checker sees what is read. */
static void deliver_frame(struct kit *kit, const struct kit_frame *frame)
{
	uint8_t *bytes = malloc(frame->length ? frame->length : 1);

	assert_non_null(bytes);
	memcpy(bytes, frame->bytes, frame->length);
	snt__soft_input(kit->end[frame->to].device, &frame->path, bytes, frame->length,
			kit->now);
	free(bytes);
	kit->passed++;
}

static struct kit_frame *take_first(struct kit *kit)
{
	struct kit_frame *frame = kit->first;

	if (frame) {
		kit->first = frame->next;
		if (!kit->first)
			kit->last = &kit->first;
	}
	return frame;
}

static void release_late(struct kit *kit)
{
	struct kit_frame *frame = kit->late;

	kit->late = NULL;
	if (frame)
		deliver_frame(kit, frame);
	free(frame);
}

/* Delivers one packet. Returns false if there is none. */
static bool deliver_one(struct kit *kit)
{
	enum kit_fate fate = KIT_PASS;
	struct kit_frame *frame;

	collect_output(kit);
	frame = take_first(kit);
	if (!frame) {
		bool was_late = kit->late;

		release_late(kit);
		return was_late;
	}
	if (kit->fate)
		fate = kit->fate(kit, frame);
	if (fate == KIT_LATE && !kit->late) {
		kit->late = frame;
		kit->late_left = KIT_LATE_BY;
		return true;
	}
	if (fate == KIT_PASS || fate == KIT_TWICE)
		deliver_frame(kit, frame);
	if (fate == KIT_TWICE)
		deliver_frame(kit, frame);
	free(frame);
	if (kit->late && kit->late_left-- == 0)
		release_late(kit);
	return true;
}

void kit_pump(struct kit *kit)
{
	while (deliver_one(kit))
		;
}

void kit_exchange(struct kit *kit)
{
	struct kit_frame *frame;

	collect_output(kit);
	while ((frame = take_first(kit))) {
		deliver_frame(kit, frame);
		free(frame);
	}
}

static uint64_t next_deadline(struct kit *kit)
{
	uint64_t a = snt__soft_deadline(kit->end[A].device);
	uint64_t b = snt__soft_deadline(kit->end[B].device);

	return a < b ? a : b;
}

static void run_until(struct kit *kit, uint64_t end)
{
	for (;;) {
		uint64_t deadline;

		kit_pump(kit);
		deadline = next_deadline(kit);
		if (deadline > end)
			return;
		if (kit->now < deadline)
			kit->now = deadline;
		snt__soft_timer(kit->end[A].device, kit->now);
		snt__soft_timer(kit->end[B].device, kit->now);
	}
}

void kit_run(struct kit *kit)
{
	run_until(kit, kit->now + TIME_MAX);
	assert_int_equal(next_deadline(kit), SNT__SOFT_NEVER);
}

void kit_run_for(struct kit *kit, uint64_t ns)
{
	uint64_t end = kit->now + ns;

	run_until(kit, end);
	kit->now = end;
}

unsigned kit_swallow(struct kit *kit, unsigned end)
{
	static struct snt__soft_packet packets[64];
	unsigned total = 0, count;

	do {
		count = snt__soft_output(kit->end[end].device, packets, 64, kit->now);
		total += count;
	} while (count);
	return total;
}

void kit_time_out(struct kit *kit, unsigned end)
{
	uint64_t before = kit_stats(kit, end)->timeouts;

	for (;;) {
		kit->now = snt__soft_deadline(kit->end[end].device);
		snt__soft_timer(kit->end[end].device, kit->now);
		if (kit_stats(kit, end)->timeouts != before)
			return;
		kit_swallow(kit, end);
	}
}

void kit_inject(struct kit *kit, unsigned to, const struct snt__wire_packet *packet,
		const void *payload)
{
	uint8_t bytes[SNT__WIRE_HEADER_MAX + 4096 + 4];
	struct snt__soft_path path = { .hop_limit = 64 };
	size_t length = snt__wire_encode(packet, bytes);

	gid_of_end(kit, !to, path.source);
	gid_of_end(kit, to, path.target);
	if (packet->payload_length)
		memcpy(bytes + length, payload, packet->payload_length);
	length += packet->payload_length;
	memset(bytes + length, 0, snt__wire_pad(packet->payload_length));
	length += snt__wire_pad(packet->payload_length);
	snt__soft_input(kit->end[to].device, &path, bytes, length, kit->now);
}

/*
 * Work
 */

static bool is_atomic_opcode(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

struct ibv_send_wr kit_wr(struct kit *kit, unsigned end, const struct kit_send *send,
			  struct ibv_sge *sge)
{
	const struct kit_end *e = &kit->end[end], *peer = &kit->end[!end];
	struct ibv_send_wr wr = {
		.wr_id = send->id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = send->opcode,
		.send_flags = send->flags | (send->silent ? 0 : IBV_SEND_SIGNALED),
		.imm_data = send->imm,
	};

	*sge = (struct ibv_sge){
		.addr = (uintptr_t)e->bytes + send->at,
		.length = send->length,
		.lkey = e->mr->lkey,
	};
	if (is_atomic_opcode(send->opcode)) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->bytes + send->far;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = send->compare_add;
		wr.wr.atomic.swap = send->swap;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->bytes + send->far;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return wr;
}

int kit_try_send(struct kit *kit, unsigned end, const struct kit_send *send)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_sge sge;
	struct ibv_send_wr wr = kit_wr(kit, end, send, &sge);
	int error = ibv_post_send(kit->end[end].qp, &wr, &bad);

	assert_ptr_equal(bad, error ? &wr : NULL);
	return error;
}

void kit_send(struct kit *kit, unsigned end, const struct kit_send *send)
{
	assert_int_equal(kit_try_send(kit, end, send), 0);
}

int kit_try_recv(struct kit *kit, unsigned end, uint64_t id, uint32_t at,
		 uint32_t length)
{
	struct kit_end *e = &kit->end[end];
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->bytes + at,
		.length = length,
		.lkey = e->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad = NULL;
	int error = e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad)
			   : ibv_post_recv(e->qp, &wr, &bad);

	assert_ptr_equal(bad, error ? &wr : NULL);
	return error;
}

void kit_recv(struct kit *kit, unsigned end, uint64_t id, uint32_t at, uint32_t length)
{
	assert_int_equal(kit_try_recv(kit, end, id, at, length), 0);
}

struct ibv_wc kit_expect(struct kit *kit, unsigned end, uint64_t id,
			 enum ibv_wc_status status)
{
	struct ibv_wc wc = { 0 };

	assert_int_equal(ibv_poll_cq(kit->end[end].cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_string_equal(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	return wc;
}

void kit_expect_none(struct kit *kit, unsigned end)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(kit->end[end].cq, 1, &wc), 0);
}

void kit_expect_event(struct kit *kit, unsigned end, enum ibv_event_type type)
{
	struct pollfd wait = { .fd = kit->end[end].context->async_fd,
			       .events = POLLIN };
	struct ibv_async_event event;

	assert_int_equal(poll(&wait, 1, 0), 1);
	assert_int_equal(kit->control->get_async_event(kit->end[end].context, &event),
			 0);
	assert_string_equal(ibv_event_type_str(event.event_type),
			    ibv_event_type_str(type));
	kit->control->ack_async_event(&event);
}

void kit_expect_no_event(struct kit *kit, unsigned end)
{
	struct pollfd wait = { .fd = kit->end[end].context->async_fd,
			       .events = POLLIN };
	struct ibv_async_event event;

	assert_int_equal(poll(&wait, 1, 0), 0);
	assert_int_equal(kit->control->get_async_event(kit->end[end].context, &event),
			 -EAGAIN);
}

/*
 * Memory
 */

static uint8_t pattern_byte(uint32_t i, unsigned seed)
{
	return (uint8_t)(i * 7 + i / 251 + seed * 31 + 1);
}

void kit_fill(struct kit *kit, unsigned end, uint32_t at, uint32_t length,
	      unsigned seed)
{
	for (uint32_t i = 0; i < length; i++)
		kit->end[end].bytes[at + i] = pattern_byte(i, seed);
}

void kit_check(struct kit *kit, unsigned end, uint32_t at, uint32_t length,
	       unsigned seed)
{
	for (uint32_t i = 0; i < length; i++)
		if (kit->end[end].bytes[at + i] != pattern_byte(i, seed))
			fail_msg("byte %u of %u is wrong", i, length);
}

void kit_check_zero(struct kit *kit, unsigned end, uint32_t at, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		if (kit->end[end].bytes[at + i])
			fail_msg("byte %u of %u was touched", i, length);
}

const struct snt__soft_stats *kit_stats(struct kit *kit, unsigned end)
{
	return snt__soft_device_stats(kit->end[end].device);
}
