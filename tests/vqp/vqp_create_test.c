/* SPDX-License-Identifier: MIT */
/* Making, connecting and unmaking virtual QPs, and every way in which it fails. */
#include "lib/test.h"

#include <stdbool.h>

#include "lib/devices/vqp_pair.h"

#define DEVICES_MAX 3

/* A context with one virtual CQ, on a fabric that ends may share. */
struct end {
	struct scripted_fabric *fabric;
	struct scripted_device *device[DEVICES_MAX];
	unsigned device_count;
	struct snt_ctx *ctx;
	struct snt_cq *cq;
};

static struct end open_end(struct scripted_fabric *fabric, unsigned devices,
			   const struct scripted_device_opts *device_opts)
{
	struct end end = { .fabric = fabric, .device_count = devices };
	struct snt_adopted adopted[DEVICES_MAX];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = adopted,
				     .adopted_count = devices };

	for (unsigned i = 0; i < devices; i++) {
		end.device[i] = scripted_device_create(fabric, device_opts);
		adopted[i] = scripted_adopted(end.device[i]);
	}
	assert_success(snt_ctx_create(&opts, &end.ctx));
	assert_success(snt_cq_create(end.ctx, NULL, &end.cq));
	return end;
}

static struct end open_alone(unsigned devices)
{
	return open_end(scripted_fabric_create(1), devices, NULL);
}

static void close_end(struct end *end)
{
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_ctx_destroy(end->ctx));
	for (unsigned i = 0; i < end->device_count; i++)
		assert_int_equal(scripted_faults(end->device[i]), 0);
}

static void close_alone(struct end *end)
{
	close_end(end);
	assert_int_equal(scripted_fabric_destroy(end->fabric), 0);
}

static struct snt_qp_opts options(struct end *end, uint32_t lanes)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .cq = end->cq,
				     .lanes = lanes };
}

static unsigned live(struct end *end, enum scripted_kind kind)
{
	unsigned count = 0;

	for (unsigned i = 0; i < end->device_count; i++)
		count += scripted_live(end->device[i], kind);
	return count;
}

/* Refused with these words, and nothing was made. */
static void expect_refused(struct end *end, struct snt_qp_opts opts, const char *phrase)
{
	struct snt_qp *qp = NULL;

	assert_error(snt_qp_create(end->ctx, &opts, &qp), EINVAL, phrase);
	assert_null(qp);
	assert_int_equal(live(end, SCRIPTED_QP), 0);
}

#define REFUSED(field, number, phrase)                     \
	do {                                               \
		struct snt_qp_opts wrong = options(&e, 0); \
		wrong.field = (number);                    \
		expect_refused(&e, wrong, phrase);         \
	} while (0)

static void options_out_of_range_are_named(void **state)
{
	struct end e = open_alone(2);

	(void)state;
	REFUSED(cq, NULL, "cq");
	REFUSED(scheme, 3, "scheme is 3; it must be from 1 to 2");
	REFUSED(flags, 16, "flags is 16");
	REFUSED(flags, SNT_QP_STRICT, "SNT_QP_STRICT needs SNT_QP_FAILOVER");
	REFUSED(flags, SNT_QP_FAILOVER | SNT_QP_PASS_THROUGH, "keeps no WRs");
	REFUSED(flags, SNT_QP_FAILOVER | SNT_QP_NOTIFY_LENGTH,
		"cannot have SNT_QP_NOTIFY_LENGTH yet");
	REFUSED(lanes, 129, "lanes is 129; it must be from 0 to 128");
	REFUSED(devices, 4, "devices 0x4 names devices beyond the 2");
	REFUSED(lane_depth, 32769, "lane_depth is 32769; it must be from 1 to 32768");
	REFUSED(lane_depth, UINT32_MAX, "lane_depth is 4294967295");
	REFUSED(send_depth, (1 << 20) + 1, "send_depth is 1048577");
	REFUSED(send_depth, UINT32_MAX, "send_depth is 4294967295");
	REFUSED(recv_depth, 32769, "recv_depth is 32769");
	REFUSED(send_sge_max, SNT_SGES_MAX + 1,
		"send_sge_max is 33; it must be from 1 to 32");
	REFUSED(recv_sge_max, SNT_SGES_MAX + 1, "recv_sge_max is 33");
	REFUSED(inline_max, 4097, "inline_max is 4097; it must be from 0 to 4096");
	REFUSED(timeout, 32, "timeout is 32; it must be from 1 to 31");
	REFUSED(retry_count, 8, "retry_count is 8; it must be from 1 to 7");
	REFUSED(rnr_retry_count, 8, "rnr_retry_count is 8");
	REFUSED(rnr_timer, 32, "rnr_timer is 32");
	close_alone(&e);
}

/* Also h26: sizes that would divide by zero or never fit. */
static void h26_nonsense_sizes_are_refused(void **state)
{
	struct end e = open_alone(1);

	(void)state;
	REFUSED(fragment_size, 1, "fragment_size is 1; it must be from 64");
	REFUSED(fragment_size, 300, "fragment_size 300 is not a multiple of 64");
	REFUSED(fragment_size, UINT64_MAX, "fragment_size is 18446744073709551615");
	REFUSED(fragment_size, UINT64_C(1) << 32, "fragment_size is 4294967296");
	REFUSED(mtu, 1000, "mtu");
	REFUSED(mtu, 128, "mtu");
	REFUSED(mtu, 8192, "mtu");
	close_alone(&e);
}

/* Its last fragment and the raw immediate need two places. */
static void h15_a_sequenced_lane_has_two_places(void **state)
{
	struct end e = open_alone(1);
	struct snt_qp_opts opts = options(&e, 2);

	(void)state;
	opts.scheme = SNT_SCHEME_DQPLB;
	opts.lane_depth = 1;
	expect_refused(&e, opts, "lane_depth is 1; it must be from 2 to");
	close_alone(&e);
}

static void limits_of_devices_are_named(void **state)
{
	const struct scripted_device_opts small = { .message_max = 1 << 20,
						    .qp_wr_max = 100,
						    .sge_max = 4 };
	struct end e = open_end(scripted_fabric_create(1), 2, &small);

	(void)state;
	/* Defaults do not fit such a device either, and then say so. */
	REFUSED(lanes, 2, "limit of 100");
#undef REFUSED
#define REFUSED(field, number, phrase)                               \
	do {                                                         \
		struct snt_qp_opts wrong = options(&e, 2);           \
		wrong.lane_depth = wrong.recv_depth = 16;            \
		wrong.field = (number);                              \
		expect_refused(&e, wrong, phrase);                   \
		assert_non_null(strstr(snt_err_text(), "scripted")); \
	} while (0)
	REFUSED(lane_depth, 100, "is beyond the device's limit of 100");
	REFUSED(recv_depth, 100, "is beyond the device's limit of 100");
	REFUSED(send_sge_max, 5, "send_sge_max 5 is beyond the device's limit of 4");
	REFUSED(recv_sge_max, 5, "recv_sge_max 5 is beyond the device's limit of 4");
	REFUSED(fragment_size, 2 << 20,
		"2097152 is beyond the device's limit of 1048576");
	close_alone(&e);
}

static void a_cq_of_another_context_is_refused(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct end e[2] = { open_end(fabric, 1, NULL), open_end(fabric, 1, NULL) };
	struct snt_qp_opts opts = options(&e[1], 1);

	(void)state;
	expect_refused(&e[0], opts, "another context");
	opts = options(&e[0], 1);
	opts.recv_cq = e[1].cq;
	expect_refused(&e[0], opts, "another context");
	for (unsigned i = 0; i < 2; i++)
		close_end(&e[i]);
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

/* Every control call of a construction fails in turn, on each device. */
static void every_failure_of_a_construction_is_undone(void **state)
{
	(void)state;
	for (unsigned shape = 0; shape < 12; shape++) {
		static const unsigned lanes[] = { 2, 4, 1 };
		unsigned device = shape % 2, nth;
		/* f4: the one is as good an error as the other. */
		int error = shape / 2 % 2 ? EAGAIN : EMFILE;
		struct end e = open_alone(2);
		struct snt_qp_opts opts = options(&e, lanes[shape / 4]);

		opts.scheme = shape / 2 % 2 ? SNT_SCHEME_DQPLB : SNT_SCHEME_SPRAY;
		for (nth = 1;; nth++) {
			struct snt_qp *qp = NULL;
			int ret;

			scripted_fail_control(e.device[device], nth, error);
			ret = snt_qp_create(e.ctx, &opts, &qp);
			if (!scripted_failed_control(e.device[device])) {
				scripted_fail_control(e.device[device], 0, 0);
				assert_success(ret);
				assert_success(snt_qp_destroy(qp));
				break;
			}
			assert_error(ret, error, device ? "scripted1" : "scripted0");
			assert_null(qp);
			assert_int_equal(live(&e, SCRIPTED_QP), 0);
			/* A CQ of its own for each attempt, and nothing in it. */
			assert_success(snt_cq_destroy(e.cq));
			assert_int_equal(live(&e, SCRIPTED_CQ), 0);
			assert_success(snt_cq_create(e.ctx, NULL, &e.cq));
			opts.cq = e.cq;
		}
		/* A CQ, a QP, its INIT, at least; a single lane is on one device. */
		assert_true(nth > 3 || (opts.lanes == 1 && device));
		close_alone(&e);
	}
}

static void every_failure_of_both_in_one_is_undone(void **state)
{
	struct end e = open_alone(1);
	struct snt_qp_opts opts = options(&e, 2);
	struct snt_cq *cq = NULL;
	struct snt_qp *qp = NULL;
	unsigned nth;

	(void)state;
	assert_error(snt_qp_create_with_cq(e.ctx, NULL, &opts, &cq, &qp), EINVAL, "cq");
	opts.cq = NULL;
	for (nth = 1;; nth++) {
		int ret;

		scripted_fail_control(e.device[0], nth, EMFILE);
		ret = snt_qp_create_with_cq(e.ctx, NULL, &opts, &cq, &qp);
		if (!scripted_failed_control(e.device[0])) {
			assert_success(ret);
			break;
		}
		assert_error(ret, EMFILE, "scripted0");
		assert_null(cq);
		assert_null(qp);
		assert_int_equal(live(&e, SCRIPTED_QP), 0);
		assert_int_equal(live(&e, SCRIPTED_CQ), 0);
	}
	scripted_fail_control(e.device[0], 0, 0);
	assert_true(nth > 3);
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_cq_destroy(cq));
	close_alone(&e);
}

/*
 * Budgets and lifetimes
 */

static void a_cq_never_has_less_room_than_its_qps_need(void **state)
{
	struct end e = open_alone(1);
	struct snt_cq_opts small = { .size = sizeof(small),
				     .depth = 40,
				     .per_device = 2 };
	struct snt_qp_opts opts = options(&e, 1);
	struct snt_qp *qp[10];
	unsigned count = 0;
	struct snt_cq *cq;
	int ret;

	(void)state;
	assert_success(snt_cq_create(e.ctx, &small, &cq));
	opts.cq = cq;
	opts.flags = SNT_QP_PASS_THROUGH;
	opts.lane_depth = opts.recv_depth = 40;
	assert_error(snt_qp_create(e.ctx, &opts, &qp[0]), ENOSPC,
		     "completions at once");
	assert_non_null(strstr(snt_err_text(), "depth 40"));
	opts.lane_depth = opts.recv_depth = 12;
	while (!(ret = snt_qp_create(e.ctx, &opts, &qp[count])))
		assert_in_range(++count, 1, 3); /* 4 would be 96 in 80 places */
	assert_error(ret, ENOSPC, "completions at once");
	assert_int_equal(count, 2);
	assert_int_equal(snt_cq_count(cq), 2);
	assert_int_equal(live(&e, SCRIPTED_QP), 2);
	/* What a destroyed one leaves is there for the next. */
	for (unsigned i = 0; i < 20; i++) {
		assert_success(snt_qp_destroy(qp[i % 2]));
		assert_success(snt_qp_create(e.ctx, &opts, &qp[i % 2]));
	}
	assert_int_equal(snt_cq_count(cq), 2);
	assert_null(snt_cq_physical(cq, 2, NULL));
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_qp_destroy(qp[i]));
	assert_success(snt_cq_destroy(cq));
	close_alone(&e);
}

static void cq_options_are_checked(void **state)
{
	const struct scripted_device_opts small = { .cqe_max = 500 };
	struct end e = open_end(scripted_fabric_create(1), 1, &small);
	struct snt_cq_opts opts = { .size = sizeof(opts), .depth = 501 };
	struct snt_cq *cq = NULL;
	struct snt_wc wc;

	(void)state;
	assert_error(snt_cq_create(e.ctx, &opts, &cq), EINVAL,
		     "at most 500 entries, not 501");
	assert_null(cq);
	assert_error(snt_cq_poll_index(e.cq, 0, &wc, 1), EINVAL, "");
	assert_int_equal(snt_cq_poll(e.cq, &wc, 1), 0);
	close_alone(&e);
}

static void nothing_is_freed_before_what_uses_it(void **state)
{
	struct end e = open_alone(1);
	struct snt_qp_opts opts = options(&e, 2);
	struct snt_cq *recv_cq;
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_cq_create(e.ctx, NULL, &recv_cq));
	opts.recv_cq = recv_cq;
	assert_success(snt_qp_create(e.ctx, &opts, &qp));
	assert_error(snt_cq_destroy(e.cq), EBUSY, "1 QP reports");
	assert_error(snt_cq_destroy(recv_cq), EBUSY, "1 QP reports");
	assert_error(snt_ctx_destroy(e.ctx), EBUSY, "");
	assert_error(snt_qp_close(qp, 1), ENOTCONN, "destroy");
	assert_success(snt_qp_destroy(qp));
	assert_error(snt_ctx_destroy(e.ctx), EBUSY, "");
	assert_success(snt_cq_destroy(recv_cq));
	close_alone(&e);
}

static void a_busy_cq_tells_how_many_qps_it_has(void **state)
{
	struct end e = open_alone(1);
	struct snt_qp_opts opts = options(&e, 2);
	struct snt_qp *qp[2];

	(void)state;
	assert_success(snt_qp_create(e.ctx, &opts, &qp[0]));
	assert_error(snt_cq_destroy(e.cq), EBUSY, "1 QP reports");
	assert_success(snt_qp_create(e.ctx, &opts, &qp[1]));
	assert_error(snt_cq_destroy(e.cq), EBUSY, "2 QPs report");
	assert_success(snt_qp_destroy(qp[0]));
	assert_error(snt_cq_destroy(e.cq), EBUSY, "1 QP reports");
	assert_success(snt_qp_destroy(qp[1]));
	close_alone(&e);
}

static void a_cq_that_a_device_keeps_is_not_forgotten(void **state)
{
	struct end e = open_alone(1);
	struct snt_qp_opts opts = options(&e, 2);
	struct snt_qp *qp;

	(void)state;
	assert_success(snt_qp_create(e.ctx, &opts, &qp));
	assert_success(snt_qp_destroy(qp));
	scripted_fail_control(e.device[0], 1, EBUSY);
	assert_int_equal(snt_cq_destroy(e.cq), -EBUSY);
	close_alone(&e);
}

/*
 * Connecting
 */

struct link {
	struct scripted_fabric *fabric;
	struct end end[2];
	struct snt_qp *qp[2];
	struct snt_mem *mem[2];
	unsigned char buffer[2][4096];
};

/* Two ends that have QPs and memory, and no connection. */
static struct link *open_link(unsigned devices, struct snt_qp_opts opts)
{
	struct link *link = calloc(1, sizeof(*link));

	link->fabric = scripted_fabric_create(1);
	opts.size = sizeof(opts);
	for (unsigned i = 0; i < 2; i++) {
		link->end[i] = open_end(link->fabric, devices, NULL);
		opts.cq = link->end[i].cq;
		assert_success(snt_qp_create(link->end[i].ctx, &opts, &link->qp[i]));
		assert_success(snt_mem_register(link->end[i].ctx, link->buffer[i],
						sizeof(link->buffer[i]),
						SNT_ACCESS_LOCAL_WRITE |
							SNT_ACCESS_REMOTE_WRITE,
						&link->mem[i]));
	}
	return link;
}

static int connect_one(struct link *link, unsigned end)
{
	struct snt_card card;

	assert_success(snt_qp_card(link->qp[!end], &card));
	return snt_qp_connect(link->qp[end], &card);
}

static void connect_both(struct link *link)
{
	assert_success(connect_one(link, 0));
	assert_success(connect_one(link, 1));
}

static struct snt_wc link_poll(struct link *link, struct snt_cq *cq)
{
	struct snt_wc wc = { 0 };

	for (unsigned i = 0; i < 1000; i++) {
		int count = snt_cq_poll(cq, &wc, 1);

		assert_success(count);
		if (count)
			return wc;
		scripted_run(link->fabric, i);
	}
	fail_msg("no completion");
	return wc;
}

static void close_link(struct link *link)
{
	for (unsigned i = 0; i < 2; i++) {
		if (link->qp[i] && snt_qp_close(link->qp[i], 9) != -ENOTCONN)
			while (link_poll(link, link->end[i].cq).opcode != SNT_OP_CLOSED)
				continue;
		assert_success(snt_qp_destroy(link->qp[i]));
		assert_success(snt_mem_release(link->mem[i]));
		close_end(&link->end[i]);
	}
	assert_int_equal(scripted_fabric_destroy(link->fabric), 0);
	free(link);
}

/* A notification from 0 to 1, for which the receive may be there already. */
static void expect_traffic(struct link *link, uint64_t recv_id)
{
	struct snt_token token;
	struct snt_sge sge = { link->mem[0], link->buffer[0], 4096 };
	struct snt_send_wr wr = { .wr_id = 1,
				  .opcode = SNT_OP_WRITE_IMM,
				  .flags = SNT_SEND_SIGNALED,
				  .sge_count = 1,
				  .sge = &sge,
				  .imm = 77,
				  .remote = &token };
	struct snt_wc wc;

	assert_success(snt_mem_token(link->mem[1], &token));
	wr.remote_addr = token.addr;
	memset(link->buffer[0], 0xa5, 4096);
	assert_int_equal(snt_qp_post_send(link->qp[0], &wr, 1), 1);
	assert_int_equal(link_poll(link, link->end[0].cq).status, SNT_WC_SUCCESS);
	wc = link_poll(link, link->end[1].cq);
	assert_int_equal(wc.status, SNT_WC_SUCCESS);
	assert_int_equal(wc.opcode, SNT_OP_RECV_NOTIFY);
	assert_int_equal(wc.wr_id, recv_id);
	assert_int_equal(wc.imm, 77);
	assert_memory_equal(link->buffer[0], link->buffer[1], 4096);
}

/* As bytes for the peer, because a structure may have holes. */
static void assert_same_card(const struct snt_card *a, const struct snt_card *b)
{
	uint8_t packed[2][SNT_CARD_PACKED_MAX];
	ssize_t size = snt_card_pack(a, packed[0], sizeof(packed[0]));

	assert_success(size);
	assert_int_equal(snt_card_pack(b, packed[1], sizeof(packed[1])), size);
	assert_memory_equal(packed[0], packed[1], size);
}

static void fail_each_connect_call(struct link *link, unsigned device)
{
	struct snt_recv_wr recv = { .wr_id = 5 };
	struct snt_card before, after;
	unsigned nth;

	assert_success(snt_qp_card(link->qp[1], &before));
	assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
	for (nth = 1;; nth++) {
		int ret;

		scripted_fail_control(link->end[1].device[device], nth, EIO);
		ret = connect_one(link, 1);
		if (!scripted_failed_control(link->end[1].device[device])) {
			assert_success(ret);
			break;
		}
		assert_error(ret, EIO, "scripted");
		assert_success(snt_qp_card(link->qp[1], &after));
		assert_same_card(&before, &after);
		assert_int_equal(snt_cq_poll(link->end[1].cq, &(struct snt_wc){ 0 }, 1),
				 0);
	}
	assert_true(nth > 2); /* RTR and RTS at least */
	scripted_fail_control(link->end[1].device[device], 0, 0);
	assert_error(connect_one(link, 1), EISCONN, "");
	assert_success(connect_one(link, 0));
	/* The receive from before all attempts is there, and there once; only a
	 * pass-through lane has no memory of its own. */
	if (before.lane_count == 1)
		assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
	expect_traffic(link, 5);
	recv.wr_id = 6;
	assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
	expect_traffic(link, 6);
	close_link(link);
}

static void every_failure_to_connect_is_undone(void **state)
{
	const struct snt_qp_opts shapes[] = {
		{ .lanes = 4, .lane_depth = 8 },
		{ .lanes = 4, .lane_depth = 8, .scheme = SNT_SCHEME_DQPLB },
		{ .lanes = 1 },
		{ .lanes = 1, .flags = SNT_QP_PASS_THROUGH },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++)
		for (unsigned device = 0; device < (shapes[i].lanes > 1 ? 2 : 1);
		     device++)
			fail_each_connect_call(open_link(2, shapes[i]), device);
}

/* A device that refuses a receive fails the connection, and not the QP. */
static void a_receive_refused_while_connecting_is_undone(void **state)
{
	(void)state;
	for (int scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct snt_qp_opts opts = { .lanes = 4,
					    .lane_depth = 8,
					    .scheme = scheme };
		struct link *link = open_link(2, opts);
		struct snt_recv_wr recv = { .wr_id = 5 };

		assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
		for (unsigned device = 0; device < 2; device++) {
			struct scripted_post_fault fault = { .kind = SCRIPTED_POST_RECV,
							     .nth = 1,
							     .error = EIO };

			scripted_fail_post(link->end[1].device[device], &fault);
			assert_error(connect_one(link, 1), EIO,
				     "receives cannot be posted");
			assert_int_equal(snt_cq_poll(link->end[1].cq,
						     &(struct snt_wc){ 0 }, 1),
					 0);
		}
		connect_both(link);
		expect_traffic(link, 5);
		close_link(link);
	}
}

/* To RTS by the program's own hand. */
static void connect_lanes(struct link *link, unsigned end, const struct snt_card *peer)
{
	struct snt_adopted adopted = scripted_adopted(link->end[end].device[0]);
	struct snt_card ours;
	struct snt_lane_info lane = { .size = sizeof(lane) };
	struct snt_device_info device = { .size = sizeof(device) };

	assert_success(
		snt_device_query(snt_ctx_device(link->end[end].ctx, 0), &device));
	assert_success(snt_qp_card(link->qp[end], &ours));
	for (unsigned i = 0; !snt_qp_query_lane(link->qp[end], i, &lane); i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
					    .path_mtu = IBV_MTU_1024,
					    .dest_qp_num = peer->lane[i].qp_num,
					    .rq_psn = peer->lane[i].psn,
					    .max_dest_rd_atomic = 1,
					    .min_rnr_timer = 12 };

		attr.ah_attr.port_num = 1;
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.sgid_index = device.gid_index;
		attr.ah_attr.grh.hop_limit = 64;
		memcpy(attr.ah_attr.grh.dgid.raw, peer->device[0].gid, 16);
		assert_success(
			adopted.control->modify_qp(lane.qp, &attr,
						   IBV_QP_STATE | IBV_QP_AV |
							   IBV_QP_PATH_MTU |
							   IBV_QP_DEST_QPN |
							   IBV_QP_RQ_PSN |
							   IBV_QP_MAX_DEST_RD_ATOMIC |
							   IBV_QP_MIN_RNR_TIMER));
		attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
					     .sq_psn = ours.lane[i].psn,
					     .timeout = 14,
					     .retry_cnt = 7,
					     .rnr_retry = 7,
					     .max_rd_atomic = 1 };
		assert_success(
			adopted.control->modify_qp(lane.qp, &attr,
						   IBV_QP_STATE | IBV_QP_SQ_PSN |
							   IBV_QP_TIMEOUT |
							   IBV_QP_RETRY_CNT |
							   IBV_QP_RNR_RETRY |
							   IBV_QP_MAX_QP_RD_ATOMIC));
	}
}

static void lanes_may_be_connected_by_hand(void **state)
{
	(void)state;
	for (int scheme = SNT_SCHEME_SPRAY; scheme <= SNT_SCHEME_DQPLB; scheme++) {
		struct snt_qp_opts opts = { .lanes = 3,
					    .lane_depth = 8,
					    .scheme = scheme };
		struct link *link = open_link(1, opts);
		struct snt_recv_wr recv = { .wr_id = 5 };
		struct snt_card card[2];

		for (unsigned i = 0; i < 2; i++)
			assert_success(snt_qp_card(link->qp[i], &card[i]));
		assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
		for (unsigned i = 0; i < 2; i++) {
			assert_success(snt_qp_connect_adopted(link->qp[i], &card[!i]));
			connect_lanes(link, i, &card[!i]);
		}
		assert_error(snt_qp_connect_adopted(link->qp[0], &card[1]), EISCONN,
			     "already");
		expect_traffic(link, 5);
		close_link(link);
	}
}

/* What was agreed on with one peer does not bind with the next. */
static void a_failed_connect_leaves_no_agreement(void **state)
{
	struct snt_qp_opts opts = { .lanes = 2,
				    .lane_depth = 8,
				    .scheme = SNT_SCHEME_DQPLB,
				    .fragment_size = 1024 };
	struct link *link = open_link(1, opts);
	struct snt_recv_wr recv = { .wr_id = 5 };
	struct snt_card before, after, peer;

	(void)state;
	assert_success(snt_qp_card(link->qp[0], &before));
	assert_success(snt_qp_card(link->qp[1], &peer));
	peer.window = 2048;
	peer.fragment_size = 256;
	peer.lane_depth = 2;
	scripted_fail_control(link->end[0].device[0], 1, EIO);
	assert_int_equal(snt_qp_connect(link->qp[0], &peer), -EIO);
	assert_success(snt_qp_card(link->qp[0], &after));
	assert_same_card(&before, &after);
	connect_both(link);
	assert_success(snt_qp_card(link->qp[0], &after));
	assert_int_equal(after.window, before.window);
	assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
	expect_traffic(link, 5);
	for (unsigned i = 0; i < 2; i++) {
		struct snt_lane_info info = { .size = sizeof(info) };

		assert_success(snt_qp_query_lane(link->qp[0], i, &info));
		assert_int_equal(info.depth, 8);
		assert_true(info.bytes == 2048); /* pieces of 1024, not of 256 */
	}
	close_link(link);
}

static void unconnected_qps_take_no_sends(void **state)
{
	struct link *link = open_link(1, (struct snt_qp_opts){ .lanes = 2 });
	struct snt_send_wr wr = { .opcode = SNT_OP_SEND };
	struct snt_card card;

	(void)state;
	assert_int_equal(snt_qp_post_send(link->qp[0], &wr, 1), -ENOTCONN);
	connect_both(link);
	assert_success(snt_qp_close(link->qp[0], 1));
	assert_int_equal(snt_qp_post_send(link->qp[0], &wr, 1), -ESHUTDOWN);
	assert_int_equal(snt_qp_post_recv(link->qp[0], &(struct snt_recv_wr){ 0 }, 1),
			 -ESHUTDOWN);
	assert_success(snt_qp_card(link->qp[1], &card));
	assert_true(snt_qp_connect(link->qp[0], &card) < 0);
	assert_int_equal(link_poll(link, link->end[0].cq).opcode, SNT_OP_CLOSED);
	assert_success(snt_qp_destroy(link->qp[0]));
	assert_success(
		snt_qp_create(link->end[0].ctx,
			      &(struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
						     .cq = link->end[0].cq },
			      &link->qp[0]));
	close_link(link);
}

/* A device that refuses to end a lane may do so when asked again. */
static void a_failed_close_can_be_repeated(void **state)
{
	(void)state;
	for (unsigned nth = 1; nth <= 3; nth++) {
		struct link *link = open_link(1, (struct snt_qp_opts){ .lanes = 2 });
		struct snt_recv_wr recv = { .wr_id = 5 };

		connect_both(link);
		assert_int_equal(snt_qp_post_recv(link->qp[0], &recv, 1), 1);
		scripted_fail_control(link->end[0].device[0], nth, EIO);
		assert_error(snt_qp_close(link->qp[0], 1), EIO, "scripted0");
		scripted_run(link->fabric, nth);
		assert_success(snt_qp_close(link->qp[0], 2));
		assert_int_equal(link_poll(link, link->end[0].cq).wr_id, 5);
		assert_int_equal(link_poll(link, link->end[0].cq).opcode,
				 SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(link->qp[0]));
		link->qp[0] = NULL;
		close_link(link);
	}
}

static void receives_have_a_cq_of_their_own(void **state)
{
	(void)state;
	for (unsigned shape = 0; shape < 3; shape++) {
		struct snt_qp_opts opts = { .size = sizeof(opts),
					    .lanes = shape ? 4 : 1,
					    .scheme = shape == 2 ? SNT_SCHEME_DQPLB
								 : SNT_SCHEME_SPRAY };
		struct link *link = open_link(1, opts);
		struct snt_recv_wr recv[2] = { { .wr_id = 5 }, { .wr_id = 6 } };
		struct snt_cq *sends = link->end[1].cq, *receives;

		assert_success(snt_cq_create(link->end[1].ctx, NULL, &receives));
		assert_success(snt_qp_destroy(link->qp[1]));
		opts.cq = sends;
		opts.recv_cq = receives;
		assert_success(snt_qp_create(link->end[1].ctx, &opts, &link->qp[1]));
		connect_both(link);
		assert_int_equal(snt_qp_post_recv(link->qp[1], recv, 2), 2);
		/* Receives are looked for in their CQ only. */
		link->end[1].cq = receives;
		expect_traffic(link, 5);
		assert_int_equal(snt_cq_poll(sends, &(struct snt_wc){ 0 }, 1), 0);
		assert_success(snt_qp_close(link->qp[1], 8));
		assert_int_equal(snt_cq_poll(sends, &(struct snt_wc){ 0 }, 1), 0);
		assert_int_equal(link_poll(link, receives).wr_id, 6);
		assert_int_equal(snt_cq_poll(receives, &(struct snt_wc){ 0 }, 1), 0);
		assert_int_equal(link_poll(link, sends).opcode, SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(link->qp[1]));
		link->qp[1] = NULL;
		assert_success(snt_cq_destroy(receives));
		link->end[1].cq = sends;
		close_link(link);
	}
}

/* The program's own QPs and CQ, as the library would have made them. */
struct own {
	const struct snt_control *control;
	struct ibv_cq *cq;
	struct ibv_qp *qp[4];
};

static struct own make_own(struct end *e)
{
	struct snt_adopted adopted = scripted_adopted(e->device[0]);
	struct own own = { .control = adopted.control };

	assert_success(
		own.control->create_cq(adopted.context, 4000, NULL, NULL, 0, &own.cq));
	for (unsigned i = 0; i < ARRAY_SIZE(own.qp); i++) {
		struct ibv_qp_init_attr attr = { .send_cq = own.cq,
						 .recv_cq = own.cq,
						 .cap = { 200, 200, 4, 4, 0 },
						 .qp_type = IBV_QPT_RC };
		struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
					    .port_num = 1,
					    .qp_access_flags =
						    IBV_ACCESS_REMOTE_WRITE };

		assert_success(own.control->create_qp(adopted.pd, &attr, &own.qp[i]));
		assert_success(own.control->modify_qp(own.qp[i], &init,
						      IBV_QP_STATE | IBV_QP_PKEY_INDEX |
							      IBV_QP_PORT |
							      IBV_QP_ACCESS_FLAGS));
	}
	return own;
}

static void free_own(struct own *own)
{
	for (unsigned i = 0; i < ARRAY_SIZE(own->qp); i++)
		assert_success(own->control->destroy_qp(own->qp[i]));
	assert_success(own->control->destroy_cq(own->cq));
}

static const unsigned on_device_0[8];

static struct snt_qp_opts adopting(struct own *own, struct snt_cq *cq, size_t count)
{
	return (struct snt_qp_opts){ .size = sizeof(struct snt_qp_opts),
				     .cq = cq,
				     .adopted = own->qp,
				     .adopted_devices = on_device_0,
				     .adopted_count = count };
}

static void adopted_qps_work_and_stay(void **state)
{
	static const size_t counts[] = { 1, 2, 4 };

	(void)state;
	for (unsigned shape = 0; shape < 6; shape++) {
		size_t count = counts[shape % 3];
		enum snt_scheme scheme =
			shape / 3 && count > 1 ? SNT_SCHEME_DQPLB : SNT_SCHEME_SPRAY;
		struct snt_qp_opts opts = { .lanes = count == 1 ? 1 : count - 1,
					    .scheme = scheme };
		struct link *link;
		struct snt_recv_wr recv = { .wr_id = 5 };
		struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
		struct snt_cq *cq;
		struct own own;

		if (count == 1)
			opts.flags = SNT_QP_PASS_THROUGH;
		link = open_link(1, opts);
		own = make_own(&link->end[1]);
		cq_opts.adopted = &own.cq;
		assert_success(snt_cq_create(link->end[1].ctx, &cq_opts, &cq));
		assert_success(snt_qp_destroy(link->qp[1]));
		assert_success(snt_cq_destroy(link->end[1].cq));
		link->end[1].cq = cq;
		opts = adopting(&own, cq, count);
		opts.scheme = scheme;
		opts.flags = count == 1 ? SNT_QP_PASS_THROUGH : 0;
		assert_success(snt_qp_create(link->end[1].ctx, &opts, &link->qp[1]));
		connect_both(link);
		assert_int_equal(snt_qp_post_recv(link->qp[1], &recv, 1), 1);
		expect_traffic(link, 5);
		assert_success(snt_qp_close(link->qp[1], 3));
		assert_int_equal(link_poll(link, cq).opcode, SNT_OP_CLOSED);
		assert_success(snt_qp_destroy(link->qp[1]));
		assert_success(snt_cq_destroy(cq));
		assert_int_equal(scripted_live(link->end[1].device[0], SCRIPTED_QP), 4);
		free_own(&own);
		link->qp[1] = NULL;
		link->end[1].cq = NULL;
		close_link(link);
	}
}

static void adopted_qps_are_checked(void **state)
{
	struct end e = open_alone(1);
	struct own own = make_own(&e);
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts), .adopted = &own.cq };
	static const unsigned beyond[4] = { 0, 1, 0, 0 };
	struct snt_qp_opts opts;
	struct snt_qp *qp = NULL, *first;
	struct ibv_qp *none[2] = { own.qp[0], NULL };
	struct snt_cq *cq;

	(void)state;
	assert_success(snt_cq_create(e.ctx, &cq_opts, &cq));
	/* Fewer than data lanes, and none for notifications. */
	for (unsigned count = 1; count < 4; count++) {
		opts = adopting(&own, cq, count);
		opts.lanes = 3;
		assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL, "");
	}
	opts = adopting(&own, cq, 3);
	opts.adopted_devices = NULL;
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL, "");
	opts.adopted_devices = beyond;
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL, "1");
	opts = adopting(&own, cq, 2);
	opts.adopted = none;
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL, "1");
	opts = adopting(&own, cq, 2);
	opts.adopted = NULL;
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL, "");
	assert_null(qp);
	opts = adopting(&own, cq, 4);
	opts.lane_depth = opts.recv_depth = 2000;
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL, "needs 2002");

	opts = adopting(&own, cq, 1);
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EINVAL,
		     "a single QP needs SNT_QP_PASS_THROUGH");
	opts.flags = SNT_QP_PASS_THROUGH;
	assert_success(snt_qp_create(e.ctx, &opts, &first));
	assert_error(snt_qp_create(e.ctx, &opts, &qp), EEXIST, "");
	/* It is still its owner's: not refused, but of no WR that is under way. */
	assert_int_equal(snt_qp_complete(first, 0,
					 &(struct ibv_wc){ .qp_num = own.qp[0]->qp_num,
							   .status =
								   IBV_WC_WR_FLUSH_ERR,
							   .wr_id = 7 },
					 1, &(struct snt_wc){ 0 }, 1),
			 0);
	assert_success(snt_qp_destroy(first));
	assert_success(snt_cq_destroy(cq));
	free_own(&own);
	close_alone(&e);
}

/* Where each lane is, those behind the data lanes included, if the program says so. */
static void lanes_are_where_they_are_wished(void **state)
{
	static const struct {
		enum snt_scheme scheme;
		uint32_t flags, lanes, notify_lanes, all;
		unsigned device[5];
	} cases[] = {
		{ SNT_SCHEME_SPRAY, 0, 3, 2, 5, { 2, 0, 2, 1, 0 } },
		{ SNT_SCHEME_DQPLB, 0, 2, 0, 3, { 1, 1, 0 } },
		{ SNT_SCHEME_SPRAY, SNT_QP_PASS_THROUGH, 1, 0, 1, { 2 } },
	};
	struct end end = open_alone(3);

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snt_qp_opts opts = options(&end, cases[i].lanes);
		struct snt_lane_info info = { .size = sizeof(info) };
		unsigned devices[5];
		struct snt_qp *qp;

		memcpy(devices, cases[i].device, sizeof(devices));
		opts.scheme = cases[i].scheme;
		opts.flags = cases[i].flags;
		opts.notify_lanes = cases[i].notify_lanes;
		opts.lane_devices = devices;
		assert_success(snt_qp_create(end.ctx, &opts, &qp));
		/* Only looked at by the call. */
		memset(devices, 0xff, sizeof(devices));
		for (unsigned lane = 0; lane < cases[i].all; lane++) {
			assert_success(snt_qp_query_lane(qp, lane, &info));
			assert_int_equal(info.device, cases[i].device[lane]);
			assert_ptr_equal(info.qp->context,
					 snt_device_context(
						 snt_ctx_device(end.ctx, info.device)));
		}
		assert_int_equal(snt_qp_query_lane(qp, cases[i].all, &info), -ENOENT);
		assert_success(snt_qp_destroy(qp));
		devices[cases[i].all - 1] = 3;
		memcpy(devices, cases[i].device,
		       (cases[i].all - 1) * sizeof(devices[0]));
		assert_error(snt_qp_create(end.ctx, &opts, &qp), EINVAL,
			     "is to be on device 3 of 3");
	}
	close_alone(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_out_of_range_are_named),
		cmocka_unit_test(h26_nonsense_sizes_are_refused),
		cmocka_unit_test(h15_a_sequenced_lane_has_two_places),
		cmocka_unit_test(limits_of_devices_are_named),
		cmocka_unit_test(a_cq_of_another_context_is_refused),
		cmocka_unit_test(every_failure_of_a_construction_is_undone),
		cmocka_unit_test(every_failure_of_both_in_one_is_undone),
		cmocka_unit_test(a_cq_never_has_less_room_than_its_qps_need),
		cmocka_unit_test(cq_options_are_checked),
		cmocka_unit_test(nothing_is_freed_before_what_uses_it),
		cmocka_unit_test(a_busy_cq_tells_how_many_qps_it_has),
		cmocka_unit_test(a_cq_that_a_device_keeps_is_not_forgotten),
		cmocka_unit_test(every_failure_to_connect_is_undone),
		cmocka_unit_test(a_receive_refused_while_connecting_is_undone),
		cmocka_unit_test(lanes_may_be_connected_by_hand),
		cmocka_unit_test(a_failed_connect_leaves_no_agreement),
		cmocka_unit_test(unconnected_qps_take_no_sends),
		cmocka_unit_test(a_failed_close_can_be_repeated),
		cmocka_unit_test(receives_have_a_cq_of_their_own),
		cmocka_unit_test(lanes_are_where_they_are_wished),
		cmocka_unit_test(adopted_qps_work_and_stay),
		cmocka_unit_test(adopted_qps_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
