/* SPDX-License-Identifier: MIT */
/* Programs make their soft devices fail, on sockets and in shared memory. The code at the
 * beginning of fault.h is run here: tests/check/headers.py compares. */
#include "lib/test.h"

#include <sennit/sennit.h>
#include <unistd.h>

#include "dev/soft/udp/device.h"
#include "lib/devices/scripted.h"
#include "lib/loopback.h"
#include "lib/patience.h"

#define BYTES (1u << 20)

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	struct snt_token token;
	struct snt_card card;
	uint8_t *bytes;
};

static struct end ends[2];

static int check(int ret)
{
	assert_success(ret);
	return ret;
}

static struct snt_device *device_at(unsigned number)
{
	return snt_ctx_device(ends[number].ctx, 0);
}

static void open_end(unsigned number)
{
	struct end *end = &ends[number];
	struct snt_ctx_opts ctx = SNT_INIT(ctx, .soft = SNT_SOFT_ONLY,
					   .soft_addresses = loopback_text(number));
	struct snt_qp_opts qp = SNT_INIT(qp);

	check(snt_ctx_create(&ctx, &end->ctx));
	end->bytes = calloc(1, BYTES);
	assert_non_null(end->bytes);
	check(snt_mem_register(end->ctx, end->bytes, BYTES,
			       SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
			       &end->mem));
	check(snt_mem_token(end->mem, &end->token));
	check(snt_qp_create_with_cq(end->ctx, NULL, &qp, &end->cq, &end->qp));
	check(snt_qp_card(end->qp, &end->card));
}

static void close_end(struct end *end)
{
	struct snt_wc wc = { 0 };

	check(snt_qp_close(end->qp, 0));
	while (wc.opcode != SNT_OP_CLOSED)
		check(snt_cq_poll(end->cq, &wc, 1));
	check(snt_qp_destroy(end->qp));
	check(snt_cq_destroy(end->cq));
	check(snt_mem_release(end->mem));
	check(snt_ctx_destroy(end->ctx));
	free(end->bytes);
}

static int open_ends(const char *shm)
{
	setenv("SENNIT_SOFT_SHM", shm, 1);
	alarm(patience_s(100));
	for (unsigned i = 0; i < 2; i++)
		open_end(i);
	for (unsigned i = 0; i < 2; i++)
		check(snt_qp_connect(ends[i].qp, &ends[!i].card));
	memset(ends[0].bytes, 'x', BYTES);
	return 0;
}

static int open_on_sockets(void **state)
{
	(void)state;
	return open_ends("off");
}

static int open_on_shared_memory(void **state)
{
	(void)state;
	return open_ends("on");
}

static int close_ends(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		close_end(&ends[i]);
	alarm(0);
	return 0;
}

static void start_transfer(struct snt_qp *qp)
{
	struct snt_sge sge = { ends[0].mem, ends[0].bytes, BYTES };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &ends[1].token,
				  .remote_addr = ends[1].token.addr };

	assert_int_equal(check(snt_qp_post_send(qp, &wr, 1)), 1);
}

static struct snt_device_stats stats_of(struct snt_device *device)
{
	struct snt_device_stats stats = SNT_INIT(stats);

	check(snt_device_query_stats(device, &stats));
	return stats;
}

static bool lost_packets(struct snt_device *device)
{
	return stats_of(device).lost_by_fault;
}

static struct snt_wc poll_until_done(struct snt_cq *cq)
{
	struct snt_wc wc;

	while (!check(snt_cq_poll(cq, &wc, 1)))
		;
	return wc;
}

/* What a device has written it has written with its lock. */
static void finish_transfer(struct snt_cq *cq)
{
	struct snt__udp_device *device =
		snt__udp_device_of(snt_device_context(device_at(1)));

	assert_int_equal(poll_until_done(cq).status, SNT_WC_SUCCESS);
	snt__udp_lock(device);
	snt__udp_unlock(device);
	assert_memory_equal(ends[0].bytes, ends[1].bytes, BYTES);
}

static void transfer_survives_a_cut(void **state)
{
	struct snt_device *device = device_at(0);
	struct snt_qp *qp = ends[0].qp;
	struct snt_cq *cq = ends[0].cq;
	struct snt_wc wc;

	(void)state;
	/* code of fault.h */
	struct snt_fault_opts fault =
		SNT_INIT(fault, .kind = SNT_FAULT_CUT, .after_sent = 2);

	check(snt_device_fail(device, &fault));
	start_transfer(qp);
	while (!lost_packets(device)) // snt_device_stats.lost_by_fault
		check(snt_cq_poll(cq, &wc, 1));
	check(snt_device_heal(device));
	finish_transfer(cq); // the QP's timeout brings back what was lost
	/* end of code */
	assert_true(stats_of(device).resends > 0);
}

static void receiver_that_is_cut_loses_all(void **state)
{
	struct snt_device *device = device_at(1);
	struct snt_fault_opts fault = SNT_INIT(fault, .kind = SNT_FAULT_CUT_IN);
	struct snt_wc wc;

	(void)state;
	check(snt_device_fail(device, &fault));
	start_transfer(ends[0].qp);
	while (!lost_packets(device))
		assert_int_equal(snt_cq_poll(ends[0].cq, &wc, 1), 0);
	check(snt_device_heal(device));
	finish_transfer(ends[0].cq);
}

static void hear_port(void *arg, const struct snt_event *event)
{
	enum snt_event_type *type = arg;

	*type = event->type;
}

static void expect_event(struct snt_loop *loop, const enum snt_event_type *type,
			 enum snt_event_type expected)
{
	while (*type != expected)
		check(snt_loop_wait(loop, -1));
}

static void programs_hear_of_a_port_that_is_down(void **state)
{
	struct snt_fault_opts fault = SNT_INIT(fault, .kind = SNT_FAULT_PORT_DOWN);
	struct snt_device_info info = SNT_INIT(info);
	enum snt_event_type type = SNT_EVENT_OTHER;
	struct snt_loop *loop;

	(void)state;
	check(snt_loop_create(ends[0].ctx, NULL, &loop));
	check(snt_loop_set_event_handler(loop, hear_port, &type));
	check(snt_device_fail(device_at(0), &fault));
	expect_event(loop, &type, SNT_EVENT_PORT_DOWN);
	check(snt_device_refresh(device_at(0)));
	check(snt_device_query(device_at(0), &info));
	assert_int_equal(info.state, SNT_PORT_DOWN);
	check(snt_device_heal(device_at(0)));
	expect_event(loop, &type, SNT_EVENT_PORT_ACTIVE);
	check(snt_loop_destroy(loop));
	start_transfer(ends[0].qp);
	finish_transfer(ends[0].cq);
}

static void dead_device_flushes_and_says_so(void **state)
{
	struct snt_fault_opts fault = SNT_INIT(fault, .kind = SNT_FAULT_DEVICE_FATAL);

	(void)state;
	check(snt_device_fail(device_at(1), NULL));
	start_transfer(ends[0].qp);
	check(snt_device_fail(device_at(0), &fault));
	assert_int_equal(poll_until_done(ends[0].cq).status, SNT_WC_FLUSHED);
	assert_error(snt_device_heal(device_at(0)), EIO, "soft0 port 1 is dead");
	assert_error(snt_device_fail(device_at(0), NULL), EIO, "soft0 port 1 is dead");
}

static void unknown_faults_are_refused(void **state)
{
	struct snt_fault_opts fault = SNT_INIT(fault, .kind = 77);
	struct snt_fault_opts small = { .size = 1 };

	(void)state;
	assert_error(snt_device_fail(device_at(0), &fault), EINVAL,
		     "soft0 port 1: fault 77 is unknown");
	assert_error(snt_device_fail(device_at(0), &small), EINVAL,
		     "struct snt_fault_opts");
	check(snt_device_heal(device_at(0)));
	start_transfer(ends[0].qp);
	finish_transfer(ends[0].cq);
}

static void other_devices_do_not_fail_on_purpose(void **state)
{
	struct scripted_fabric *fabric = scripted_fabric_create(1);
	struct snt_adopted adopted =
		scripted_adopted(scripted_device_create(fabric, NULL));
	struct snt_ctx_opts opts =
		SNT_INIT(opts, .adopted = &adopted, .adopted_count = 1);
	struct snt_ctx *ctx;

	(void)state;
	check(snt_ctx_create(&opts, &ctx));
	assert_error(snt_device_fail(snt_ctx_device(ctx, 0), NULL), EOPNOTSUPP,
		     "only soft devices");
	assert_error(snt_device_heal(snt_ctx_device(ctx, 0)), EOPNOTSUPP,
		     "only soft devices");
	check(snt_ctx_destroy(ctx));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

#define ON_SOCKETS(function) \
	cmocka_unit_test_setup_teardown(function, open_on_sockets, close_ends)
#define IN_MEMORY(function) \
	cmocka_unit_test_setup_teardown(function, open_on_shared_memory, close_ends)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_SOCKETS(transfer_survives_a_cut),
		IN_MEMORY(transfer_survives_a_cut),
		ON_SOCKETS(receiver_that_is_cut_loses_all),
		IN_MEMORY(receiver_that_is_cut_loses_all),
		ON_SOCKETS(programs_hear_of_a_port_that_is_down),
		ON_SOCKETS(dead_device_flushes_and_says_so),
		IN_MEMORY(dead_device_flushes_and_says_so),
		ON_SOCKETS(unknown_faults_are_refused),
		cmocka_unit_test(other_devices_do_not_fail_on_purpose),
	};

	return cmocka_run_group_tests_name("udp_fault", tests, NULL, NULL);
}
