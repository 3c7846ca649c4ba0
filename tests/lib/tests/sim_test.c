/* SPDX-License-Identifier: MIT */
/* The simulated fabric as a whole: devices, time, faults, and what programs see. */
#include "lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <sennit/sennit.h>

#include "lib/sim/device.h"
#include "lib/rc.h"

#define MEMORY 65536
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define MS UINT64_C(1000000)

/* Two hosts with a device each, and a pair of QPs. */
struct side {
	struct snt__sim_host *host;
	struct snt__sim_device *device;
	const struct snt_control *control;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *memory;
};

struct bed {
	struct snt__sim *sim;
	struct snt__sim_link_opts link;
	struct side side[2];
};

static void open_side(struct bed *bed, struct side *side,
		      const struct snt__sim_device_opts *opts)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 16, 16, 1, 1, 0 },
	};

	assert_success(snt__sim_host_create(bed->sim, &side->host));
	assert_success(snt__sim_device_create(side->host, opts, &side->device));
	side->control = side->device->adopted->control;
	side->context = side->device->adopted->context;
	side->pd = side->device->adopted->pd;
	side->memory = calloc(1, MEMORY);
	assert_success(side->control->create_channel(side->context, &side->channel));
	assert_success(side->control->create_cq(side->context, 64, NULL, side->channel,
						0, &side->cq));
	assert_success(side->control->reg_mr(side->pd, side->memory, MEMORY, ACCESS,
					     &side->mr));
	init.send_cq = init.recv_cq = side->cq;
	assert_success(side->control->create_qp(side->pd, &init, &side->qp));
}

static void connect_side(struct side *side, const struct side *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = ACCESS };
	struct ibv_gid_entry entry;

	assert_success(
		side->control->modify_qp(side->qp, &attr, rc_mask(IBV_QPS_INIT)));
	assert_success(peer->control->query_gid(peer->context, 1, 0, &entry));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = entry.gid, .hop_limit = 64 } },
	};
	assert_success(side->control->modify_qp(side->qp, &attr, rc_mask(IBV_QPS_RTR)));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 8,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 4 };
	assert_success(side->control->modify_qp(side->qp, &attr, rc_mask(IBV_QPS_RTS)));
}

static struct bed *open_bed(const struct snt__sim_opts *opts,
			    struct snt__sim_link_opts link, bool ipv6)
{
	struct bed *bed = calloc(1, sizeof(*bed));
	struct snt__sim_device_opts device = { .ipv6 = ipv6 };

	bed->link = link;
	device.out = device.in = &bed->link;
	assert_success(snt__sim_create(opts, &bed->sim));
	for (int i = 0; i < 2; i++)
		open_side(bed, &bed->side[i], &device);
	for (int i = 0; i < 2; i++)
		connect_side(&bed->side[i], &bed->side[!i]);
	return bed;
}

static void drain_events(struct side *side)
{
	struct pollfd poller = { .fd = side->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	while (poll(&poller, 1, 0) == 1) {
		assert_success(side->control->get_async_event(side->context, &event));
		side->control->ack_async_event(&event);
	}
}

static void close_bed(struct bed *bed)
{
	for (int i = 0; i < 2; i++) {
		struct side *side = &bed->side[i];

		drain_events(side);
		assert_success(side->control->destroy_qp(side->qp));
		assert_success(side->control->destroy_cq(side->cq));
		assert_success(side->control->destroy_channel(side->channel));
		assert_success(side->control->dereg_mr(side->mr));
		free(side->memory);
	}
	assert_success(snt__sim_destroy(bed->sim));
	free(bed);
}

static void write_bytes(struct bed *bed, unsigned from, uint32_t length)
{
	struct side *side = &bed->side[from], *peer = &bed->side[!from];
	struct ibv_sge sge = { (uintptr_t)side->memory, length, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = length,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;

	memset(side->memory, (int)length, length);
	wr.wr.rdma.remote_addr = (uintptr_t)peer->memory;
	wr.wr.rdma.rkey = peer->mr->rkey;
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

static const struct snt__sim_opts plain = { .seed = 1 };
static const struct snt__sim_link_opts micro = { .delay_ns = 1000 };

/*
 * Time
 */

static void nothing_happens_until_time_passes(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);
	struct ibv_wc wc;

	(void)state;
	write_bytes(bed, 0, 64);
	for (int i = 0; i < 100; i++)
		assert_int_equal(ibv_poll_cq(bed->side[0].cq, 1, &wc), 0);
	assert_int_equal(snt__sim_now(bed->sim), 0);
	/* Out, to the other, and back: four links. */
	snt__sim_run(bed->sim, 3999);
	assert_int_equal(ibv_poll_cq(bed->side[0].cq, 1, &wc), 0);
	assert_int_equal(bed->side[1].memory[63], 64);
	snt__sim_run(bed->sim, 4000);
	assert_int_equal(ibv_poll_cq(bed->side[0].cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(snt__sim_run_idle(bed->sim, 10 * MS));
	close_bed(bed);
}

static void polling_is_enough_if_asked_for(void **state)
{
	struct bed *bed =
		open_bed(&(struct snt__sim_opts){ .seed = 1, .poll_steps = true },
			 micro, true);
	struct ibv_wc wc;
	int polls = 0;

	(void)state;
	write_bytes(bed, 0, 5000);
	while (!ibv_poll_cq(bed->side[0].cq, 1, &wc))
		assert_true(polls++ < 1000);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(snt__sim_now(bed->sim) >= 4000);
	/* And time passes even if there is nothing left to happen. */
	snt__sim_run_idle(bed->sim, UINT64_MAX);
	for (int i = 0; i < 10; i++) {
		uint64_t before = snt__sim_now(bed->sim);

		assert_int_equal(ibv_poll_cq(bed->side[0].cq, 1, &wc), 0);
		assert_true(snt__sim_now(bed->sim) > before);
	}
	close_bed(bed);
}

static void sleeping_lets_time_pass(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);
	struct side *side = &bed->side[0];
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	(void)state;
	assert_int_equal(ibv_req_notify_cq(side->cq, 0), 0);
	write_bytes(bed, 0, 64);
	assert_success(side->control->get_cq_event(side->channel, &cq, &context));
	assert_ptr_equal(cq, side->cq);
	side->control->ack_cq_events(cq, 1);
	assert_int_equal(snt__sim_now(bed->sim), 4000);
	assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 1);
	/* A program that would sleep for ever is told so. */
	assert_int_equal(side->control->get_cq_event(side->channel, &cq, &context),
			 -EDEADLK);
	close_bed(bed);
}

static void record_time(void *arg)
{
	struct bed *bed = arg;

	bed->side[1].memory[0]++;
	assert_int_equal(snt__sim_now(bed->sim), 100u * bed->side[1].memory[0]);
}

static void functions_are_called_in_time(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);

	(void)state;
	snt__sim_at(bed->sim, 200, record_time, bed);
	snt__sim_at(bed->sim, 300, record_time, bed);
	snt__sim_at(bed->sim, 100, record_time, bed);
	snt__sim_run(bed->sim, 250);
	assert_int_equal(bed->side[1].memory[0], 2);
	snt__sim_run(bed->sim, 1000);
	assert_int_equal(bed->side[1].memory[0], 3);
	assert_int_equal(snt__sim_now(bed->sim), 1000);
	close_bed(bed);
}

/* What a context is given: the same clock, and dice that replay. */
static void contexts_have_the_fabrics_clock_and_chance(void **state)
{
	uint64_t dice[2][2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct bed *bed = open_bed(&plain, micro, false);
		struct snt_ctx_opts opts = { .size = sizeof(opts) };
		struct snt_ctx *ctx;

		snt__sim_host_ctx_opts(bed->side[0].host, &opts);
		assert_success(snt_ctx_create(&opts, &ctx));
		assert_int_equal(snt_ctx_device_count(ctx), 1);
		snt__sim_run(bed->sim, 12345);
		assert_int_equal(opts.clock(opts.clock_arg), 12345);
		opts.random(opts.random_arg, dice[i], sizeof(dice[i]));
		assert_success(snt_ctx_destroy(ctx));
		close_bed(bed);
	}
	assert_memory_equal(dice[0], dice[1], sizeof(dice[0]));
	assert_int_not_equal(dice[0][0], dice[0][1]);
}

/*
 * Chance
 */

static const struct snt__sim_link_opts rough = {
	.delay_ns = 1000,
	.jitter_ns = 500,
	.loss = 50000,
	.duplicate = 50000,
	.corrupt = 50000,
	.reorder = 50000,
	.late_ns = 5000,
};

/* Memory is at another place each time, so packets without addresses are used. */
static uint64_t hash_of(uint64_t seed)
{
	struct bed *bed =
		open_bed(&(struct snt__sim_opts){ .seed = seed }, rough, true);
	struct side *side = &bed->side[1];
	struct ibv_sge sge = { (uintptr_t)side->memory, MEMORY, side->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_sge from = { (uintptr_t)bed->side[0].memory, 20000,
				bed->side[0].mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &from,
				  .num_sge = 1 },
			   *bad;
	struct ibv_wc wc;
	uint64_t hash;

	for (int i = 0; i < 4; i++) {
		assert_int_equal(ibv_post_recv(side->qp, &recv, &bad_recv), 0);
		assert_int_equal(ibv_post_send(bed->side[0].qp, &wr, &bad), 0);
	}
	for (int i = 0; i < 4; i++) {
		while (!ibv_poll_cq(bed->side[0].cq, 1, &wc))
			assert_true(snt__sim_step(bed->sim));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	snt__sim_run_idle(bed->sim, UINT64_MAX);
	hash = snt__sim_hash(bed->sim);
	close_bed(bed);
	return hash;
}

static void a_seed_decides_everything(void **state)
{
	(void)state;
	assert_int_equal(hash_of(1), hash_of(1));
	assert_int_equal(hash_of(2), hash_of(2));
	assert_int_not_equal(hash_of(1), hash_of(2));
}

static void everything_is_accounted_for(void **state)
{
	struct bed *bed = open_bed(&plain, rough, false);
	const struct snt__sim_stats *stats = snt__sim_stats(bed->sim);
	uint64_t dropped = 0;
	struct ibv_wc wc;

	(void)state;
	for (int i = 0; i < 20; i++) {
		write_bytes(bed, 0, 60000);
		while (!ibv_poll_cq(bed->side[0].cq, 1, &wc))
			assert_true(snt__sim_step(bed->sim));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	snt__sim_run_idle(bed->sim, UINT64_MAX);
	for (int i = 0; i < SNT__SIM_DROPS; i++)
		dropped += stats->dropped[i];
	assert_int_equal(stats->sent + stats->duplicated, stats->delivered + dropped);
	assert_true(stats->dropped[SNT__SIM_DROP_LOSS]);
	assert_true(stats->dropped[SNT__SIM_DROP_CORRUPT]);
	/* Of packets that were lost or doubled later, damage counts once, or not. */
	assert_true(stats->corrupted);
	assert_true(stats->duplicated);
	assert_int_equal(snt__sim_in_flight(bed->sim), 0);
	close_bed(bed);
}

/*
 * Faults
 */

static enum ibv_wc_status await_outcome(struct bed *bed)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(bed->side[0].cq, 1, &wc))
		assert_true(snt__sim_step(bed->sim));
	return wc.status;
}

static void a_cut_that_is_restored_is_only_slow(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);

	(void)state;
	snt__sim_device_cut(bed->side[1].device, true);
	write_bytes(bed, 0, 64);
	snt__sim_run(bed->sim, 2 * MS);
	assert_true(snt__sim_stats(bed->sim)->dropped[SNT__SIM_DROP_CUT]);
	snt__sim_device_cut(bed->side[1].device, false);
	assert_int_equal(await_outcome(bed), IBV_WC_SUCCESS);
	close_bed(bed);
}

static void a_cut_for_good_exhausts_retries(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);

	(void)state;
	snt__sim_device_cut(bed->side[0].device, true);
	write_bytes(bed, 0, 64);
	assert_int_equal(await_outcome(bed), IBV_WC_RETRY_EXC_ERR);
	close_bed(bed);
}

static void a_dead_host_says_nothing(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);
	struct ibv_wc wc;

	(void)state;
	write_bytes(bed, 0, 64);
	write_bytes(bed, 1, 32);
	snt__sim_host_kill(bed->side[1].host);
	assert_int_equal(await_outcome(bed), IBV_WC_RETRY_EXC_ERR);
	assert_true(snt__sim_stats(bed->sim)->dropped[SNT__SIM_DROP_DEAD]);
	assert_int_equal(bed->side[0].memory[0], 64);
	assert_int_equal(bed->side[1].memory[0], 32);
	assert_int_equal(ibv_poll_cq(bed->side[1].cq, 1, &wc), 0);
	assert_true(snt__sim_run_idle(bed->sim, UINT64_MAX));
	close_bed(bed);
}

static void expect_event(struct side *side, enum ibv_event_type type)
{
	struct ibv_async_event event;

	assert_success(side->control->get_async_event(side->context, &event));
	assert_int_equal(event.event_type, type);
	side->control->ack_async_event(&event);
}

static void a_dead_device_says_so(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);

	(void)state;
	write_bytes(bed, 0, 64);
	snt__sim_device_kill(bed->side[0].device);
	expect_event(&bed->side[0], IBV_EVENT_DEVICE_FATAL);
	assert_int_equal(await_outcome(bed), IBV_WC_WR_FLUSH_ERR);
	close_bed(bed);
}

static void a_port_goes_down_and_up(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);
	struct ibv_port_attr attr;
	struct side *side = &bed->side[0];

	(void)state;
	snt__sim_device_set_port(side->device, false);
	expect_event(side, IBV_EVENT_PORT_ERR);
	assert_success(side->control->query_port(side->context, 1, &attr));
	assert_int_equal(attr.state, IBV_PORT_DOWN);
	write_bytes(bed, 0, 64);
	snt__sim_run(bed->sim, 2 * MS);
	snt__sim_device_set_port(side->device, true);
	expect_event(side, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(await_outcome(bed), IBV_WC_SUCCESS);
	close_bed(bed);
}

/*
 * Making and unmaking
 */

static void objects_in_use_are_not_destroyed(void **state)
{
	struct bed *bed = open_bed(&plain, micro, false);

	(void)state;
	assert_error(snt__sim_destroy(bed->sim), EBUSY, "in use");
	close_bed(bed);
}

static void a_gid_is_used_once(void **state)
{
	const uint8_t gid[1][16] = { { 0xfd, [15] = 7 } };
	struct snt__sim_device_opts opts = { .gids = gid, .gid_count = 1 };
	struct snt__sim_device *device;
	struct snt__sim_host *host;
	struct snt__sim *sim;

	(void)state;
	assert_success(snt__sim_create(&plain, &sim));
	assert_success(snt__sim_host_create(sim, &host));
	assert_success(snt__sim_device_create(host, &opts, &device));
	assert_error(snt__sim_device_create(host, &opts, &device), EEXIST, "device");
	for (int i = 1; i < SNT_DEVICES_MAX; i++)
		assert_success(snt__sim_device_create(host, NULL, &device));
	assert_error(snt__sim_device_create(host, NULL, &device), E2BIG, "at most");
	assert_success(snt__sim_destroy(sim));
}

/* Two devices through a trunk of their own speed share it. */
static void a_trunk_is_shared(void **state)
{
	struct snt__sim_link_opts link = { .mbps = 1000 };
	struct snt__sim_device_opts opts = { 0 };
	struct snt__sim_trunk *trunk;
	struct bed bed = { 0 };

	(void)state;
	assert_success(snt__sim_create(&plain, &bed.sim));
	assert_success(snt__sim_trunk_create(bed.sim, &link, &trunk));
	for (int i = 0; i < 2; i++) {
		opts.trunk = i ? trunk : NULL;
		open_side(&bed, &bed.side[i], &opts);
	}
	for (int i = 0; i < 2; i++)
		connect_side(&bed.side[i], &bed.side[!i]);
	write_bytes(&bed, 0, 62500);
	assert_int_equal(await_outcome(&bed), IBV_WC_SUCCESS);
	/* Half a megabit takes half a millisecond, and headers take some more. */
	assert_in_range(snt__sim_now(bed.sim), 500000, 560000);
	for (int i = 0; i < 2; i++) {
		struct side *side = &bed.side[i];

		assert_success(side->control->destroy_qp(side->qp));
		assert_success(side->control->destroy_cq(side->cq));
		assert_success(side->control->destroy_channel(side->channel));
		assert_success(side->control->dereg_mr(side->mr));
		free(side->memory);
	}
	assert_success(snt__sim_destroy(bed.sim));
}

/* One block for each packet sent, received or lost. */
static void captures_have_every_packet(void **state)
{
	char path[] = "/tmp/sennit-capture-XXXXXX";
	int fd = mkstemp(path);
	struct bed *bed =
		open_bed(&(struct snt__sim_opts){ .seed = 1, .capture = path }, micro,
			 false);
	uint32_t head[2];
	unsigned packets = 0;

	(void)state;
	write_bytes(bed, 0, 5000);
	assert_int_equal(await_outcome(bed), IBV_WC_SUCCESS);
	snt__sim_run_idle(bed->sim, UINT64_MAX);
	for (off_t at = 0; pread(fd, head, sizeof(head), at) == sizeof(head);
	     at += head[1])
		packets += head[0] == 6;
	assert_int_equal(packets, snt__sim_stats(bed->sim)->sent +
					  snt__sim_stats(bed->sim)->delivered);
	close(fd);
	unlink(path);
	close_bed(bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_happens_until_time_passes),
		cmocka_unit_test(polling_is_enough_if_asked_for),
		cmocka_unit_test(sleeping_lets_time_pass),
		cmocka_unit_test(functions_are_called_in_time),
		cmocka_unit_test(contexts_have_the_fabrics_clock_and_chance),
		cmocka_unit_test(a_seed_decides_everything),
		cmocka_unit_test(everything_is_accounted_for),
		cmocka_unit_test(a_cut_that_is_restored_is_only_slow),
		cmocka_unit_test(a_cut_for_good_exhausts_retries),
		cmocka_unit_test(a_dead_host_says_nothing),
		cmocka_unit_test(a_dead_device_says_so),
		cmocka_unit_test(a_port_goes_down_and_up),
		cmocka_unit_test(objects_in_use_are_not_destroyed),
		cmocka_unit_test(a_gid_is_used_once),
		cmocka_unit_test(a_trunk_is_shared),
		cmocka_unit_test(captures_have_every_packet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
