/* SPDX-License-Identifier: MIT */
/*
 * Packets from anywhere into the soft device, while its QPs are in every state and
 * have work of every kind. The input is a program, see `steps`: it makes packets, with
 * keys and PSNs that are often right, posts WRs, lets time pass, changes states, and
 * lets the device's own packets reach it, late, damaged or not at all.
 *
 * Besides what sanitizers see: bytes outside of registered memory never change, each
 * WR completes at most once, and everything can be destroyed.
 */
#include <assert.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dev/soft/device.h"
#include "dev/soft/wire.h"
#include "lib/rc.h"

#define QPS	    9
#define DATAGRAM    8 /* the QP which is one of UD */
#define QKEY	    0x11111111
#define DEPTH	    4
#define MEMORY	    16384
#define GUARDED	    64 /* on both sides of what is registered */
#define GUARD	    0xa5
#define PSN	    0xfffff8 /* where every QP begins, in both directions */
#define PACKETS_MAX 16
#define PAYLOAD_MAX 1024
#define FRAME_MAX   4160
#define WAITING_MAX 8
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_MR (ACCESS | IBV_ACCESS_MW_BIND)

static const uint8_t gid[1][16] = { { [10] = 0xff, 0xff, 10, 0, 0, 1 } };

/* A packet of the device on its way back to it. */
struct frame {
	struct snt__soft_path path;
	size_t length;
	uint8_t bytes[FRAME_MAX];
};

struct bed {
	const uint8_t *data; /* what is left of the input */
	size_t size;
	struct snt__soft_device *device;
	const struct snt_control *control;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr, *read_only;
	struct ibv_mw *mw;
	struct ibv_qp *qp[QPS];
	struct ibv_ah *ah;
	uint32_t psn[QPS]; /* that the QP expects next, for all we know */
	unsigned char *memory;
	uint64_t now, posted, completed;
	uint64_t random;
	struct snt__soft_path mad_path; /* of MADs to be sent, */
	uint8_t mad;			/* with this in front, */
	unsigned mads;			/* and so many of them */
	struct frame waiting[WAITING_MAX];
	unsigned first, count;
};

static uint8_t take(struct bed *bed)
{
	if (!bed->size)
		return 0;
	bed->size--;
	return *bed->data++;
}

static uint32_t take16(struct bed *bed)
{
	uint32_t high = take(bed);

	return high << 8 | take(bed);
}

static void fill_random(void *arg, void *buffer, size_t length)
{
	struct bed *bed = arg;
	uint8_t *to = buffer;

	for (size_t i = 0; i < length; i++)
		to[i] = (bed->random = bed->random * 6364136223846793005u + 1) >> 56;
}

static void kick(void *arg)
{
	(void)arg;
}

static int do_not_wait(void *arg, int fd)
{
	(void)arg;
	(void)fd;
	return -EAGAIN;
}

static const struct snt__soft_driver driver = { .random = fill_random,
						.kick = kick,
						.wait = do_not_wait };

/*
 * QPs in every state: 0 and 1, 2 and 3 are connected with each other, 3 with an SRQ;
 * 4 in RTR, 5 in INIT, 6 in RESET, 7 in ERR. The last one is of UD.
 */

static int datagram_mask(enum ibv_qp_state state)
{
	switch (state) {
	case IBV_QPS_INIT:
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	case IBV_QPS_RTS:
		return IBV_QP_STATE | IBV_QP_SQ_PSN;
	default:
		return IBV_QP_STATE;
	}
}

static int attributes(enum ibv_qp_state state, uint32_t peer, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = peer,
		.sq_psn = PSN,
		.rq_psn = PSN,
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 2,
		.min_rnr_timer = 1,
		.timeout = 8,
		.retry_cnt = 3,
		.rnr_retry = 3,
		.qkey = QKEY,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	memcpy(attr->ah_attr.grh.dgid.raw, gid[0], sizeof(gid[0]));
	return rc_mask(state);
}

static int set_state(struct bed *bed, unsigned qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	int mask =
		attributes(state, bed->qp[qp == DATAGRAM ? qp : qp ^ 1]->qp_num, &attr);

	if (qp == DATAGRAM)
		mask = datagram_mask(state);
	if (state == IBV_QPS_RTR)
		bed->psn[qp] = PSN;
	return bed->control->modify_qp(bed->qp[qp], &attr, mask);
}

static void advance(struct bed *bed, unsigned qp, enum ibv_qp_state state)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						 IBV_QPS_RTS };
	int ret = 0;

	for (unsigned i = 0; i < 3 && way[i] <= state; i++)
		ret |= set_state(bed, qp, way[i]);
	assert(!ret);
}

static void open_qps(struct bed *bed)
{
	static const enum ibv_qp_state states[QPS] = {
		IBV_QPS_RTS,  IBV_QPS_RTS,   IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTR,
		IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPS_RTS,
	};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = bed->cq,
		.recv_cq = bed->cq,
	};
	int ret = 0;

	for (unsigned i = 0; i < QPS; i++) {
		init.cap = (struct ibv_qp_cap){ DEPTH, DEPTH, 2, 2, 32 };
		init.srq = i == 3 ? bed->srq : NULL;
		init.qp_type = i == DATAGRAM ? IBV_QPT_UD : IBV_QPT_RC;
		ret |= bed->control->create_qp(bed->pd, &init, &bed->qp[i]);
	}
	assert(!ret);
	for (unsigned i = 0; i < QPS; i++)
		if (states[i] != IBV_QPS_RESET)
			advance(bed, i, states[i]);
	set_state(bed, 7, IBV_QPS_ERR);
}

/* Reads all of it, so that sanitizers see whether it is there. */
static void take_mad(void *arg, const struct snt__soft_path *path,
		     const uint8_t mad[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	struct bed *bed = arg;

	(void)path;
	assert(now == bed->now);
	for (unsigned i = 0; i < SNT__SOFT_MAD_SIZE; i++)
		bed->random += mad[i];
}

static bool make_mad(void *arg, struct snt__soft_path *path,
		     uint8_t mad[SNT__SOFT_MAD_SIZE], uint64_t now)
{
	struct bed *bed = arg;

	assert(now == bed->now);
	if (!bed->mads)
		return false;
	bed->mads--;
	*path = bed->mad_path;
	memset(mad, 0, SNT__SOFT_MAD_SIZE);
	mad[0] = bed->mad;
	return true;
}

static uint64_t mad_deadline(void *arg)
{
	(void)arg;
	return SNT__SOFT_NEVER;
}

static void mad_timer(void *arg, uint64_t now)
{
	const struct bed *bed = arg;

	assert(now == bed->now);
}

static const struct snt__soft_agent agent = {
	.input = take_mad,
	.output = make_mad,
	.deadline = mad_deadline,
	.timer = mad_timer,
};

static void open_bed(struct bed *bed)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1 };
	struct snt__soft_config config = {
		.name = "fuzz",
		.driver = &driver,
		.driver_arg = bed,
		.gids = gid,
		.gid_count = 1,
		.qp_max = QPS,
		.cq_max = 1,
		.mr_max = 16,
		.srq_max = 1,
		.request_window = 2048,
		.response_window = 2048,
	};
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 2 } };
	int ret = snt__soft_device_create(&config, &bed->device);

	assert(!ret);
	bed->control = snt__soft_control();
	bed->context = snt__soft_device_context(bed->device);
	bed->memory = malloc(MEMORY);
	memset(bed->memory, GUARD, MEMORY);
	ret |= bed->control->alloc_pd(bed->context, &bed->pd);
	ret |= bed->control->create_cq(bed->context, 1024, NULL, NULL, 0, &bed->cq);
	ret |= bed->control->create_srq(bed->pd, &srq, &bed->srq);
	ret |= bed->control->reg_mr(bed->pd, bed->memory + GUARDED,
				    MEMORY - 2 * GUARDED, ACCESS_MR, &bed->mr);
	ret |= bed->control->reg_mr(bed->pd, bed->memory + GUARDED,
				    MEMORY - 2 * GUARDED,
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND,
				    &bed->read_only);
	memcpy(ah.grh.dgid.raw, gid[0], sizeof(gid[0]));
	ret |= bed->control->alloc_mw(bed->pd, &bed->mw);
	ret |= snt__soft_create_ah(bed->pd, &ah, &bed->ah);
	assert(!ret);
	snt__soft_device_set_agent(bed->device, &agent, bed);
	open_qps(bed);
}

/*
 * Steps
 */

static void input(struct bed *bed, const struct snt__soft_path *path,
		  const uint8_t *bytes, size_t length)
{
	/* Just as long as it is, so that reading behind it is found out. */
	uint8_t *copy = calloc(1, length ? length : 1);

	if (length)
		memcpy(copy, bytes, length);
	snt__soft_input(bed->device, path, copy, length, bed->now);
	free(copy);
}

static struct snt__soft_path make_path(uint8_t what)
{
	struct snt__soft_path path = { .source_port = 0xc000, .hop_limit = 64 };

	memcpy(path.source, gid[0], 16);
	memcpy(path.target, gid[0], 16);
	if (what == 0xff)
		path.source[15]++;
	if (what == 0xfe)
		path.target[15]++;
	return path;
}

static uint64_t make_addr(struct bed *bed, uint8_t what)
{
	uint64_t base = (uintptr_t)bed->memory + GUARDED;

	if (what < 0xf0)
		return base + what * 64;
	return base + (MEMORY - 2 * GUARDED) - (what & 15);
}

static uint32_t make_key(const struct bed *bed, uint8_t what)
{
	if (what >= 0xe0 && what < 0xf0)
		return bed->mw->rkey - (what == 0xe0); /* the last one, or before it */
	if (what < 0xf0)
		return bed->mr->rkey;
	return what < 0xf8 ? bed->read_only->rkey : bed->mr->rkey ^ 1u << (what & 31);
}

/* The extension headers and the length that go with an opcode. */
static void make_headers(struct bed *bed, uint16_t parts,
			 struct snt__wire_packet *packet)
{
	if (parts & SNT__WIRE_RETH) {
		packet->reth.addr = make_addr(bed, take(bed));
		packet->reth.key = make_key(bed, take(bed));
		packet->reth.length = take16(bed);
	} else if (parts & SNT__WIRE_ATOMIC_ETH) {
		packet->atomic.addr = make_addr(bed, take(bed)) & ~(uint64_t)7;
		packet->atomic.key = make_key(bed, take(bed));
		packet->atomic.compare = take(bed);
		packet->atomic.swap_add = packet->atomic.compare + 1;
	} else if (parts & SNT__WIRE_AETH) {
		packet->ack.syndrome = take(bed);
		packet->ack.msn = take(bed);
	} else if (parts & SNT__WIRE_DETH) {
		packet->datagram.source_qpn = take(bed);
		packet->datagram.qkey =
			packet->datagram.source_qpn & 1 ? SNT__WIRE_GSI_QKEY : QKEY;
	} else if (parts & SNT__WIRE_IETH) {
		packet->invalidate.key = make_key(bed, take(bed));
	}
	if (parts & SNT__WIRE_PAYLOAD)
		packet->payload_length = take16(bed) % (PAYLOAD_MAX + 1);
}

/* One packet from its fields, most of them right. */
static void make_packet(struct bed *bed)
{
	uint8_t bytes[SNT__WIRE_HEADER_MAX + PAYLOAD_MAX + 4] = { 0 };
	uint8_t who = take(bed);
	unsigned qp = who % QPS;
	int8_t ahead = (int8_t)take(bed);
	struct snt__soft_path path = make_path(take(bed));
	struct snt__wire_packet packet = { .pkey = SNT__WIRE_PKEY_DEFAULT,
					   .qpn = bed->qp[qp]->qp_num };
	const struct snt__wire_opcode_info *info;
	size_t at;

	if (who == 0xff)
		packet.qpn = SNT__WIRE_GSI_QPN;
	packet.opcode = take(bed);
	packet.flags = take(bed);
	info = &snt__wire_opcodes[packet.opcode];
	if (!info->header_size)
		return;
	packet.psn = snt__psn_add(bed->psn[qp], (uint32_t)ahead);
	if (!ahead && !snt__wire_kind_is_response(info->kind))
		bed->psn[qp] = snt__psn_add(bed->psn[qp], 1);
	make_headers(bed, info->parts, &packet);
	at = snt__wire_encode(&packet, bytes);
	memset(bytes + at, take(bed), packet.payload_length);
	at += packet.payload_length + snt__wire_pad(packet.payload_length);
	input(bed, &path, bytes, at);
}

/* Bytes as they come, but for the QP number. */
static void raw_packet(struct bed *bed)
{
	struct snt__soft_path path = make_path(0);
	unsigned qp = take(bed) % QPS;
	size_t length = take(bed);
	uint8_t bytes[256];

	if (length > bed->size)
		length = bed->size;
	memcpy(bytes, bed->data, length);
	bed->data += length;
	bed->size -= length;
	if (length >= 8) {
		bytes[5] = bed->qp[qp]->qp_num >> 16;
		bytes[6] = bed->qp[qp]->qp_num >> 8;
		bytes[7] = bed->qp[qp]->qp_num;
	}
	input(bed, &path, bytes, length);
}

static void post_send(struct bed *bed)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_INV,
	};
	struct ibv_sge sge[2] = { { .lkey = bed->mr->lkey },
				  { .lkey = bed->mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = bed->posted, .sg_list = sge }, *bad;
	unsigned qp = take(bed) % QPS;

	sge[0].addr = make_addr(bed, take(bed));
	sge[0].length = take16(bed) % 2048;
	sge[1].addr = make_addr(bed, 1);
	sge[1].length = take(bed) % 64;
	wr.opcode = opcodes[take(bed) % 8];
	wr.send_flags = take(bed) & 15;
	wr.num_sge = take(bed) % 3;
	if (wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = make_key(bed, take(bed));
	if (qp == DATAGRAM) {
		wr.wr.ud.ah = bed->ah;
		wr.wr.ud.remote_qpn = bed->qp[take(bed) % QPS]->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = make_addr(bed, take(bed)) & ~(uint64_t)7;
		wr.wr.atomic.rkey = bed->mr->rkey;
		sge[0].length = 8;
		wr.num_sge = 1;
	} else {
		wr.wr.rdma.remote_addr = make_addr(bed, take(bed));
		wr.wr.rdma.rkey = make_key(bed, take(bed));
	}
	bed->posted += !ibv_post_send(bed->qp[qp], &wr, &bad);
}

/* The window is bound or invalidated, in whatever state it is. */
static void post_local(struct bed *bed)
{
	struct ibv_send_wr wr = { .wr_id = bed->posted, .opcode = IBV_WR_LOCAL_INV };
	struct ibv_send_wr *bad;
	unsigned qp = take(bed) % QPS;
	uint8_t what = take(bed);
	uint32_t rkey = bed->mw->rkey;

	wr.send_flags = take(bed) & 15;
	if (what & 1) {
		wr.invalidate_rkey = make_key(bed, take(bed));
	} else {
		wr.opcode = IBV_WR_BIND_MW;
		rkey = ibv_inc_rkey(rkey);
		wr.bind_mw.mw = bed->mw;
		wr.bind_mw.rkey = what & 2 ? rkey : make_key(bed, take(bed));
		wr.bind_mw.bind_info.mr = what & 4 ? bed->read_only : bed->mr;
		wr.bind_mw.bind_info.addr = make_addr(bed, take(bed));
		wr.bind_mw.bind_info.length = take16(bed);
		wr.bind_mw.bind_info.mw_access_flags = take(bed);
	}
	if (ibv_post_send(bed->qp[qp], &wr, &bad))
		return;
	bed->posted++;
	bed->mw->rkey = rkey;
}

static void change_window(struct bed *bed)
{
	int ret = ibv_dealloc_mw(bed->mw);

	bed->mw = ibv_alloc_mw(bed->pd, IBV_MW_TYPE_2);
	assert(!ret && bed->mw);
}

static void post_recv(struct bed *bed)
{
	unsigned qp = take(bed) % QPS;
	struct ibv_sge sge = { .lkey = bed->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = bed->posted, .sg_list = &sge }, *bad;

	sge.addr = make_addr(bed, take(bed));
	sge.length = take16(bed) % 2048;
	wr.num_sge = take(bed) % 2;
	if (qp == 3)
		bed->posted += !ibv_post_srq_recv(bed->srq, &wr, &bad);
	else
		bed->posted += !ibv_post_recv(bed->qp[qp], &wr, &bad);
}

/* Takes what the device wants to send; some of it will arrive. */
static void output(struct bed *bed)
{
	struct snt__soft_packet packets[PACKETS_MAX];
	unsigned want = 1 + take(bed) % PACKETS_MAX;
	unsigned count = snt__soft_output(bed->device, packets, want, bed->now);

	assert(count <= want);
	for (unsigned i = 0; i < count; i++) {
		const struct snt__soft_packet *packet = &packets[i];
		struct frame *frame =
			&bed->waiting[(bed->first + bed->count) % WAITING_MAX];
		size_t at = packet->header_length;

		assert(at <= sizeof(packet->header));
		if (bed->count == WAITING_MAX)
			break;
		frame->path = *packet->path;
		memcpy(frame->bytes, packet->header, at);
		for (unsigned j = 0; j < packet->payload_count; j++) {
			memcpy(frame->bytes + at, packet->payload[j].iov_base,
			       packet->payload[j].iov_len);
			at += packet->payload[j].iov_len;
		}
		assert(at == packet->header_length + packet->payload_length);
		memset(frame->bytes + at, 0, 4);
		frame->length = at + snt__wire_pad(packet->payload_length);
		bed->count++;
	}
}

static void forget_first(struct bed *bed)
{
	bed->first = (bed->first + 1) % WAITING_MAX;
	bed->count--;
}

static void deliver(struct bed *bed)
{
	uint8_t how = take(bed);
	struct frame *frame = &bed->waiting[bed->first];

	if (!bed->count)
		return;
	if (how == 0xff) {
		forget_first(bed);
		return;
	}
	if (how >= 0xf0)
		frame->bytes[take(bed) % frame->length] ^= 1 << (how & 7);
	input(bed, &frame->path, frame->bytes, frame->length);
	if (how < 0xe0) /* else it comes once more */
		forget_first(bed);
}

static void pass_time(struct bed *bed)
{
	uint64_t deadline = snt__soft_deadline(bed->device);
	uint8_t how = take(bed);

	if (how & 1 && deadline != SNT__SOFT_NEVER && deadline > bed->now)
		bed->now = deadline;
	else
		bed->now += (uint64_t)how << 10;
	snt__soft_timer(bed->device, bed->now);
}

static void change_state(struct bed *bed)
{
	unsigned qp = take(bed) % QPS;

	set_state(bed, qp, take(bed) % (IBV_QPS_ERR + 1));
}

static void poll_all(struct bed *bed)
{
	struct ibv_wc wc[16];
	int count;

	while ((count = ibv_poll_cq(bed->cq, 16, wc)) > 0) {
		for (int i = 0; i < count; i++)
			assert(wc[i].wr_id < bed->posted);
		bed->completed += count;
	}
	assert(bed->completed <= bed->posted);
}

/* Keys that were good no longer are. */
static void change_memory(struct bed *bed)
{
	if (bed->control->dereg_mr(bed->mr))
		return;
	if (bed->control->reg_mr(bed->pd, bed->memory + GUARDED, MEMORY - 2 * GUARDED,
				 ACCESS_MR, &bed->mr))
		abort();
}

static void send_mad(struct bed *bed)
{
	bed->mad_path = make_path(take(bed));
	bed->mad = take(bed);
	bed->mads++;
}

static void (*const steps[])(struct bed *bed) = {
	make_packet, make_packet,  make_packet,	  raw_packet, post_send,  post_recv,
	output,	     output,	   deliver,	  deliver,    deliver,	  pass_time,
	poll_all,    change_state, change_memory, send_mad,   post_local, change_window,
};

static void drain_events(struct bed *bed)
{
	struct ibv_async_event event;

	while (!bed->control->get_async_event(bed->context, &event))
		bed->control->ack_async_event(&event);
}

static void close_bed(struct bed *bed)
{
	const struct snt_control *control = bed->control;
	int ret = 0;

	poll_all(bed);
	drain_events(bed);
	for (unsigned i = 0; i < QPS; i++)
		ret |= control->destroy_qp(bed->qp[i]);
	ret |= snt__soft_destroy_ah(bed->ah);
	ret |= control->destroy_srq(bed->srq);
	ret |= control->destroy_cq(bed->cq);
	ret |= control->dealloc_mw(bed->mw);
	ret |= control->dereg_mr(bed->mr);
	ret |= control->dereg_mr(bed->read_only);
	ret |= control->dealloc_pd(bed->pd);
	ret |= snt__soft_device_destroy(bed->device);
	assert(!ret);
	for (unsigned i = 0; i < GUARDED; i++)
		assert(bed->memory[i] == GUARD && bed->memory[MEMORY - 1 - i] == GUARD);
	free(bed->memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bed bed;

	memset(&bed, 0, offsetof(struct bed, waiting));
	bed.first = bed.count = 0;
	bed.data = data;
	bed.size = size;
	open_bed(&bed);
	while (bed.size)
		steps[take(&bed) % (sizeof(steps) / sizeof(steps[0]))](&bed);
	close_bed(&bed);
	return 0;
}
