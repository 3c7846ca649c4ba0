/* SPDX-License-Identifier: MIT */
/* Soft devices that fail on purpose. */
#include "lib/test.h"
#include "dev/soft/core.h"
#include "lib/soft_kit.h"

#define FAR (256u << 10)
#define MS  UINT64_C(1000000)
#define MTU 1024

static void fail_end(struct kit *kit, unsigned end, enum snt_fault kind,
		     uint64_t after_sent)
{
	assert_int_equal(snt__soft_device_fail(kit->end[end].device, kind, after_sent),
			 0);
}

static void heal_end(struct kit *kit, unsigned end)
{
	assert_int_equal(snt__soft_device_heal(kit->end[end].device), 0);
}

static uint64_t lost_by(struct kit *kit, unsigned end)
{
	return kit_stats(kit, end)->lost_by_fault;
}

static void write_packets(struct kit *kit, unsigned end, uint64_t id, unsigned packets)
{
	kit_fill(kit, end, 0, packets * MTU, id);
	kit_send(kit, end,
		 &(struct kit_send){ .id = id,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .length = packets * MTU,
				     .far = FAR });
}

static void cut_device_neither_sends_nor_receives(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	fail_end(kit, A, SNT_FAULT_CUT, 0);
	write_packets(kit, A, 1, 4);
	write_packets(kit, B, 2, 4);
	kit_pump(kit);
	assert_int_equal(lost_by(kit, A), 4 + 4);
	assert_int_equal(lost_by(kit, B), 0);
	assert_int_equal(kit_stats(kit, A)->packets_out, 0);
	assert_int_equal(kit_stats(kit, A)->dropped, 0);
	kit_check_zero(kit, A, FAR, 4 * MTU);
	kit_check_zero(kit, B, FAR, 4 * MTU);
	kit_expect_no_event(kit, A);
	heal_end(kit, A);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_expect(kit, B, 2, IBV_WC_SUCCESS);
	kit_check(kit, B, FAR, 4 * MTU, 1);
	kit_check(kit, A, FAR, 4 * MTU, 2);
	kit_expect_no_event(kit, A);
	kit_close(kit);
}

static void cut_longer_than_retries_last_fails_the_wr(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	fail_end(kit, B, SNT_FAULT_CUT, 0);
	write_packets(kit, A, 1, 1);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_RETRY_EXC_ERR);
	kit_close(kit);
}

/* The request arrives and is executed, and its acknowledgment is lost; the other way
 * round the peer never sees the request. */
static void one_direction_can_be_cut_alone(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	fail_end(kit, B, SNT_FAULT_CUT_OUT, 0);
	write_packets(kit, A, 1, 4);
	kit_pump(kit);
	kit_check(kit, B, FAR, 4 * MTU, 1);
	kit_expect_none(kit, A);
	assert_true(lost_by(kit, B) > 0);
	heal_end(kit, B);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);

	fail_end(kit, B, SNT_FAULT_CUT_IN, 0);
	write_packets(kit, A, 2, 4);
	kit_pump(kit);
	kit_check(kit, B, FAR, 4 * MTU, 1);
	write_packets(kit, B, 3, 1);
	kit_pump(kit);
	kit_check(kit, A, FAR, MTU, 3);
	kit_expect_none(kit, B);
	heal_end(kit, B);
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_SUCCESS);
	kit_expect(kit, B, 3, IBV_WC_SUCCESS);
	kit_close(kit);
}

static void count_arrivals(struct kit *kit, const struct kit_frame *frame)
{
	kit->watched[0] += frame->to == B;
}

/* Whatever the driver takes at once. */
static void cut_occurs_after_so_many_packets(void **state)
{
	static const unsigned batches[] = { 1, 3, 64 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(batches); i++) {
		struct kit *kit = kit_open(NULL);

		kit->watch = count_arrivals;
		kit->batch = batches[i];
		fail_end(kit, A, SNT_FAULT_CUT, 3);
		write_packets(kit, A, 1, 8);
		kit_pump(kit);
		assert_int_equal(kit->watched[0], 3);
		assert_true(lost_by(kit, A) >= 5);
		kit_check(kit, B, FAR, 3 * MTU, 1);
		kit_check_zero(kit, B, FAR + 3 * MTU, 5 * MTU);
		heal_end(kit, A);
		kit_run(kit);
		kit_expect(kit, A, 1, IBV_WC_SUCCESS);
		kit_check(kit, B, FAR, 8 * MTU, 1);
		kit_close(kit);
	}
}

/* A second QP at each end, connected with each other, takes the place of the first. */
static void add_qps(struct kit *kit, struct ibv_qp *first_out[ENDS])
{
	for (unsigned end = 0; end < ENDS; end++) {
		first_out[end] = kit->end[end].qp;
		kit_make_qp(kit, end);
	}
	for (unsigned end = 0; end < ENDS; end++)
		kit_connect(kit, end);
}

/* Two QPs have packets for one batch. The driver does not come back for those of the
 * second, whose timeout must run all the same. */
static void no_qp_is_forgotten_when_the_fault_occurs(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_qp *first[ENDS];

	(void)state;
	add_qps(kit, first);
	kit->batch = SNT__SOFT_OUTPUT_MAX;
	fail_end(kit, A, SNT_FAULT_CUT, 1);
	write_packets(kit, A, 1, 50);
	for (unsigned end = 0; end < ENDS; end++) {
		struct ibv_qp *second = kit->end[end].qp;

		kit->end[end].qp = first[end];
		first[end] = second;
	}
	write_packets(kit, A, 2, 2);
	kit_run(kit);
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_wc wc = { 0 };

		assert_int_equal(ibv_poll_cq(kit->end[A].cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	}
	for (unsigned end = 0; end < ENDS; end++)
		assert_int_equal(kit->control->destroy_qp(first[end]), 0);
	kit_close(kit);
}

static void fault_that_has_not_occurred_is_withdrawn(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	fail_end(kit, A, SNT_FAULT_CUT, 2);
	heal_end(kit, A);
	write_packets(kit, A, 1, 8);
	kit_pump(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	assert_int_equal(lost_by(kit, A), 0);
	kit_close(kit);
}

static void second_fault_replaces_the_first(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	fail_end(kit, A, SNT_FAULT_PORT_DOWN, 0);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ERR);
	fail_end(kit, A, SNT_FAULT_CUT_IN, 0);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ACTIVE);
	write_packets(kit, A, 1, 1);
	kit_pump(kit);
	kit_check(kit, B, FAR, MTU, 1);
	kit_expect_none(kit, A);
	heal_end(kit, A);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_close(kit);
}

static void port_goes_down_with_events(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct ibv_port_attr port;

	(void)state;
	fail_end(kit, A, SNT_FAULT_PORT_DOWN, 2);
	kit_expect_no_event(kit, A);
	write_packets(kit, A, 1, 4);
	kit_pump(kit);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ERR);
	assert_int_equal(kit->control->query_port(kit->end[A].context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	kit_check_zero(kit, B, FAR + 2 * MTU, 2 * MTU);
	heal_end(kit, A);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ACTIVE);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	kit_close(kit);
}

/* Healing must not raise a port that something else has taken down. */
static void port_that_was_down_stays_down(void **state)
{
	struct kit *kit = kit_open(NULL);

	(void)state;
	snt__soft_device_set_port(kit->end[A].device, false);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ERR);
	fail_end(kit, A, SNT_FAULT_PORT_DOWN, 0);
	heal_end(kit, A);
	kit_expect_no_event(kit, A);
	snt__soft_device_set_port(kit->end[A].device, true);
	kit_expect_event(kit, A, IBV_EVENT_PORT_ACTIVE);
	kit_close(kit);
}

static void dead_device_cannot_be_healed(void **state)
{
	struct kit *kit = kit_open(NULL);
	struct snt__soft_device *device = kit->end[A].device;

	(void)state;
	fail_end(kit, A, SNT_FAULT_DEVICE_FATAL, 2);
	write_packets(kit, A, 1, 4);
	kit_run(kit);
	kit_expect_event(kit, A, IBV_EVENT_DEVICE_FATAL);
	kit_expect(kit, A, 1, IBV_WC_WR_FLUSH_ERR);
	kit_check(kit, B, FAR, 2 * MTU, 1);
	kit_check_zero(kit, B, FAR + 2 * MTU, 2 * MTU);
	assert_int_equal(snt__soft_device_heal(device), -EIO);
	assert_int_equal(snt__soft_device_fail(device, SNT_FAULT_CUT, 0), -EIO);
	kit_close(kit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_device_neither_sends_nor_receives),
		cmocka_unit_test(cut_longer_than_retries_last_fails_the_wr),
		cmocka_unit_test(one_direction_can_be_cut_alone),
		cmocka_unit_test(cut_occurs_after_so_many_packets),
		cmocka_unit_test(no_qp_is_forgotten_when_the_fault_occurs),
		cmocka_unit_test(fault_that_has_not_occurred_is_withdrawn),
		cmocka_unit_test(second_fault_replaces_the_first),
		cmocka_unit_test(port_goes_down_with_events),
		cmocka_unit_test(port_that_was_down_stays_down),
		cmocka_unit_test(dead_device_cannot_be_healed),
	};

	return cmocka_run_group_tests_name("soft_fault", tests, NULL, NULL);
}
