/* SPDX-License-Identifier: MIT */
/* Soft devices: UD, and QP 1. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <arpa/inet.h>

#define GRH  40u
#define FAR  (256u << 10)
#define QKEY 0x1234u

struct datagrams {
	struct kit *kit;
	struct ibv_qp *qp[ENDS];
	struct ibv_ah *ah; /* from A to B */
};

static struct ibv_qp *make_ud(struct kit *kit, unsigned end)
{
	const struct snt_control *control = kit->control;
	struct kit_end *e = &kit->end[end];
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = QKEY };
	struct ibv_qp *qp;

	assert_int_equal(control->create_qp(e->pd, &init, &qp), 0);
	assert_int_equal(control->modify_qp(qp, &attr,
					    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
			 -EINVAL);
	assert_int_equal(control->modify_qp(qp, &attr,
					    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						    IBV_QP_PORT | IBV_QP_QKEY),
			 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(control->modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(control->modify_qp(qp, &attr, IBV_QP_STATE), -EINVAL);
	assert_int_equal(control->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
	return qp;
}

static struct datagrams open_datagrams(bool ipv6)
{
	struct datagrams d = { .kit = kit_open(&(struct kit_opts){ .ipv6 = ipv6 }) };
	struct ibv_qp_attr attr;

	d.qp[A] = make_ud(d.kit, A);
	d.qp[B] = make_ud(d.kit, B);
	kit_attr(d.kit, A, IBV_QPS_RTR, &attr);
	assert_int_equal(snt__soft_create_ah(d.kit->end[A].pd, &attr.ah_attr, &d.ah),
			 0);
	return d;
}

static void close_datagrams(struct datagrams *d)
{
	assert_int_equal(snt__soft_destroy_ah(d->ah), 0);
	assert_int_equal(d->kit->control->destroy_qp(d->qp[A]), 0);
	assert_int_equal(d->kit->control->destroy_qp(d->qp[B]), 0);
	kit_close(d->kit);
}

static int send_datagram(struct datagrams *d, uint32_t length, unsigned flags,
			 uint32_t qkey)
{
	struct kit_end *a = &d->kit->end[A];
	struct ibv_sge sge = { .addr = (uintptr_t)a->bytes,
			       .length = length,
			       .lkey = a->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = 77,
		.send_flags = IBV_SEND_SIGNALED | flags,
		.wr.ud = { .ah = d->ah,
			   .remote_qpn = d->qp[B]->qp_num,
			   .remote_qkey = qkey },
	};

	return ibv_post_send(d->qp[A], &wr, &bad);
}

static void recv_datagram(struct datagrams *d, uint64_t id, uint32_t length)
{
	struct kit_end *b = &d->kit->end[B];
	struct ibv_sge sge = { .addr = (uintptr_t)b->bytes + FAR,
			       .length = length,
			       .lkey = b->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(ibv_post_recv(d->qp[B], &wr, &bad), 0);
}

static void check_ipv4(const uint8_t *grh, uint32_t payload)
{
	const uint8_t *ip = grh + 20;
	uint32_t sum = 0;

	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(grh[i], 0);
	assert_int_equal(ip[0], 0x45);
	assert_int_equal(ip[2] << 8 | ip[3], 20 + 8 + 24 + payload + 4);
	assert_int_equal(ip[9], IPPROTO_UDP);
	assert_int_equal(ip[15], 1);
	assert_int_equal(ip[19], 2);
	for (unsigned i = 0; i < 20; i += 2)
		sum += ip[i] << 8 | ip[i + 1];
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
}

static void check_ipv6(const uint8_t *grh, uint32_t payload)
{
	assert_int_equal(grh[0] >> 4, 6);
	assert_int_equal(grh[4] << 8 | grh[5], 8 + 24 + payload + 4);
	assert_int_equal(grh[6], IPPROTO_UDP);
	assert_int_equal(grh[8], 0xfd);
	assert_int_equal(grh[23], 1);
	assert_int_equal(grh[39], 2);
}

static void datagrams(void **state)
{
	static const uint32_t sizes[] = { 0, 4, 1024, 4096 };

	(void)state;
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		struct datagrams d = open_datagrams(i % 2);
		uint32_t size = sizes[i / 2];
		struct ibv_wc wc;

		kit_fill(d.kit, A, 0, size, 1);
		recv_datagram(&d, 70, GRH + size);
		assert_int_equal(send_datagram(&d, size, 0, QKEY), 0);
		kit_run(d.kit);
		assert_int_equal(kit_expect(d.kit, A, 1, IBV_WC_SUCCESS).opcode,
				 IBV_WC_SEND);
		wc = kit_expect(d.kit, B, 70, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, GRH + size);
		assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
		assert_int_equal(wc.imm_data, 77);
		assert_int_equal(wc.src_qp, d.qp[A]->qp_num);
		/* By which IP it came, as UCX wants to know it. */
		assert_int_equal(wc.sl & 7, i % 2 ? 1 : 2);
		kit_check(d.kit, B, FAR + GRH, size, 1);
		(i % 2 ? check_ipv6 : check_ipv4)(d.kit->end[B].bytes + FAR, size);
		close_datagrams(&d);
	}
}

static void undeliverable(void **state)
{
	struct datagrams d = open_datagrams(false);

	(void)state;
	/* No receive, another key: gone, and the sender does not know. */
	assert_int_equal(send_datagram(&d, 8, 0, QKEY), 0);
	kit_run(d.kit);
	recv_datagram(&d, 70, GRH + 8);
	assert_int_equal(send_datagram(&d, 8, 0, QKEY + 1), 0);
	kit_run(d.kit);
	kit_expect(d.kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(d.kit, A, 1, IBV_WC_SUCCESS);
	kit_expect_none(d.kit, B);
	assert_int_equal(kit_stats(d.kit, B)->dropped, 2);
	/* More than one packet is none. */
	assert_int_equal(send_datagram(&d, 4097, 0, QKEY), EINVAL);
	/* A key with its highest bit set stands for that of the QP. */
	assert_int_equal(send_datagram(&d, 8, IBV_SEND_INLINE, 0x80000000), 0);
	kit_run(d.kit);
	kit_expect(d.kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(d.kit, B, 70, IBV_WC_SUCCESS);
	close_datagrams(&d);
}

static void datagram_errors(void **state)
{
	struct datagrams d = open_datagrams(false);
	struct ibv_sge sge = { .addr = 8, .length = 8, .lkey = 8 };
	struct ibv_send_wr *bad, wr = {
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.ud = { .ah = d.ah, .remote_qpn = 1 },
	};

	(void)state;
	recv_datagram(&d, 70, GRH + 7);
	assert_int_equal(send_datagram(&d, 8, 0, QKEY), 0);
	kit_run(d.kit);
	kit_expect(d.kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(d.kit, B, 70, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(ibv_post_send(d.qp[A], &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND_WITH_INV;
	assert_int_equal(ibv_post_send(d.qp[A], &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_LOCAL_INV;
	assert_int_equal(ibv_post_send(d.qp[A], &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	assert_int_equal(ibv_post_send(d.qp[A], &wr, &bad), 0);
	assert_int_equal(send_datagram(&d, 8, 0, QKEY), 0);
	kit_run(d.kit);
	kit_expect(d.kit, A, 2, IBV_WC_LOC_PROT_ERR);
	kit_expect(d.kit, A, 1, IBV_WC_WR_FLUSH_ERR);
	close_datagrams(&d);
}

/*
 * QP 1
 */

struct speaker {
	unsigned left; /* MADs to be sent */
	unsigned heard;
	struct snt__soft_path path;
	uint8_t mad[SNT__SOFT_MAD_SIZE];
	uint64_t deadline, heard_at, woken_at;
};

static void hear(void *arg, const struct snt__soft_path *path, const uint8_t *mad,
		 uint64_t now)
{
	struct speaker *speaker = arg;

	speaker->heard++;
	speaker->heard_at = now;
	speaker->path = *path;
	memcpy(speaker->mad, mad, sizeof(speaker->mad));
}

static bool speak(void *arg, struct snt__soft_path *path, uint8_t *mad, uint64_t now)
{
	struct speaker *speaker = arg;

	(void)now;
	if (!speaker->left)
		return false;
	speaker->left--;
	*path = speaker->path;
	memcpy(mad, speaker->mad, sizeof(speaker->mad));
	return true;
}

static uint64_t sleep_until(void *arg)
{
	const struct speaker *speaker = arg;

	return speaker->deadline;
}

static void wake(void *arg, uint64_t now)
{
	struct speaker *speaker = arg;

	if (now < speaker->deadline)
		return;
	speaker->deadline = SNT__SOFT_NEVER;
	speaker->woken_at = now;
}

static const struct snt__soft_agent agent = {
	.input = hear,
	.output = speak,
	.deadline = sleep_until,
	.timer = wake,
};

static struct snt__soft_path path_between(struct kit *kit)
{
	struct snt__soft_path path = { .hop_limit = 64 };
	struct ibv_gid_entry entry;

	assert_int_equal(kit->control->query_gid(kit->end[A].context, 1, 0, &entry), 0);
	memcpy(path.source, entry.gid.raw, 16);
	assert_int_equal(kit->control->query_gid(kit->end[B].context, 1, 0, &entry), 0);
	memcpy(path.target, entry.gid.raw, 16);
	return path;
}

static void mads(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct speaker speaker[ENDS] = {
		{ .deadline = SNT__SOFT_NEVER },
		{ .deadline = SNT__SOFT_NEVER },
	};

	(void)state;
	speaker[A].path = path_between(kit);
	memset(speaker[A].mad, 0x5a, sizeof(speaker[A].mad));
	snt__soft_device_set_agent(kit->end[A].device, &agent, &speaker[A]);
	/* There is no listener. */
	speaker[A].left = 1;
	kit_run(kit);
	assert_int_equal(kit_stats(kit, B)->dropped, 1);
	snt__soft_device_set_agent(kit->end[B].device, &agent, &speaker[B]);
	speaker[A].left = 300;
	kit->batch = 3;
	kit_run(kit);
	assert_int_equal(speaker[B].heard, 300);
	assert_int_equal(speaker[B].heard_at, kit->now);
	assert_memory_equal(speaker[B].mad, speaker[A].mad, sizeof(speaker[A].mad));
	assert_memory_equal(speaker[B].path.source, speaker[A].path.source, 16);
	assert_in_range(speaker[B].path.source_port, 0xc000, 0xffff);
	kit_close(kit);
}

/* The device keeps the time for the user of QP 1. */
static void mad_timers(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct speaker speaker = { .deadline = 5000 };

	(void)state;
	assert_int_equal(snt__soft_deadline(kit->end[A].device), SNT__SOFT_NEVER);
	snt__soft_device_set_agent(kit->end[A].device, &agent, &speaker);
	assert_int_equal(snt__soft_deadline(kit->end[A].device), 5000);
	snt__soft_timer(kit->end[A].device, 5000);
	assert_int_equal(speaker.woken_at, 5000);
	assert_int_equal(snt__soft_deadline(kit->end[A].device), SNT__SOFT_NEVER);
	kit_close(kit);
}

static void false_mads(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct speaker speaker = { .deadline = SNT__SOFT_NEVER };
	uint8_t mad[SNT__SOFT_MAD_SIZE + 4] = { 0 };
	struct snt__wire_packet good = {
		.opcode = SNT__WIRE_UD_SEND_ONLY,
		.pkey = 0xffff,
		.qpn = 1,
		.datagram = { .qkey = SNT__WIRE_GSI_QKEY, .source_qpn = 1 },
		.payload_length = SNT__SOFT_MAD_SIZE,
	};
	struct snt__wire_packet packet;

	(void)state;
	snt__soft_device_set_agent(kit->end[B].device, &agent, &speaker);
	packet = good;
	packet.datagram.qkey++;
	kit_inject(kit, B, &packet, mad);
	packet = good;
	packet.payload_length++;
	kit_inject(kit, B, &packet, mad);
	packet = good;
	packet.payload_length--;
	kit_inject(kit, B, &packet, mad);
	packet = good;
	packet.opcode = SNT__WIRE_UD_SEND_ONLY_IMM;
	kit_inject(kit, B, &packet, mad);
	packet = good;
	packet.opcode = SNT__WIRE_SEND_ONLY;
	kit_inject(kit, B, &packet, mad);
	assert_int_equal(speaker.heard, 0);
	assert_int_equal(kit_stats(kit, B)->dropped, 5);
	kit_inject(kit, B, &good, mad);
	assert_int_equal(speaker.heard, 1);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(datagrams),	   cmocka_unit_test(undeliverable),
		cmocka_unit_test(datagram_errors), cmocka_unit_test(mads),
		cmocka_unit_test(mad_timers),	   cmocka_unit_test(false_mads),
	};

	return cmocka_run_group_tests_name("soft_datagram", tests, NULL, NULL);
}
