/* SPDX-License-Identifier: MIT */
/* A program can ask which way its packets go, and the log tells it. */
#include "lib/test.h"

#include <sennit/sennit.h>
#include <stdlib.h>

struct end {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_card card;
	char log[4096];
};

static void remember(void *arg, enum snt_log_level level, const char *text)
{
	struct end *end = arg;
	size_t used = strlen(end->log);

	(void)level;
	snprintf(end->log + used, sizeof(end->log) - used, "%s\n", text);
}

static void open_end(struct end *end, const char *shm)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .log = remember,
				     .log_arg = end,
				     .log_level = SNT_LOG_INFO };
	struct snt_cq_opts cq = { .size = sizeof(cq) };
	struct snt_qp_opts qp = { .size = sizeof(qp), .lanes = 3 };

	setenv("SENNIT_SOFT_SHM", shm, 1);
	assert_success(snt_ctx_create(&opts, &end->ctx));
	assert_success(snt_qp_create_with_cq(end->ctx, &cq, &qp, &end->cq, &end->qp));
	assert_success(snt_qp_card(end->qp, &end->card));
}

static void close_end(struct end *end)
{
	struct snt_wc wc = { 0 };

	assert_success(snt_qp_close(end->qp, 0));
	while (wc.opcode != SNT_OP_CLOSED)
		assert_success(snt_cq_poll(end->cq, &wc, 1));
	assert_success(snt_qp_destroy(end->qp));
	assert_success(snt_cq_destroy(end->cq));
	assert_success(snt_ctx_destroy(end->ctx));
}

static void assert_paths(const struct end *end, enum snt_path path)
{
	for (unsigned i = 0; i < 3; i++) {
		struct snt_lane_info lane = { .size = sizeof(lane) };

		assert_success(snt_qp_query_lane(end->qp, i, &lane));
		assert_int_equal(lane.path, path);
	}
}

static void connect_by(const char *ours, const char *theirs, enum snt_path path,
		       const char *text)
{
	struct end end[2] = { 0 };

	open_end(&end[0], ours);
	open_end(&end[1], theirs);
	for (int i = 0; i < 2; i++)
		assert_paths(&end[i], SNT_PATH_UNKNOWN);
	for (int i = 0; i < 2; i++)
		assert_success(snt_qp_connect(end[i].qp, &end[!i].card));
	for (int i = 0; i < 2; i++) {
		assert_paths(&end[i], path);
		assert_non_null(strstr(end[i].log, text));
	}
	for (int i = 0; i < 2; i++)
		close_end(&end[i]);
}

static void lanes_tell_their_path(void **state)
{
	(void)state;
	connect_by("on", "on", SNT_PATH_SHM,
		   "connected: soft0 by shared memory (2 lanes), "
		   "soft1 by shared memory (1 lane)");
	connect_by("on", "off", SNT_PATH_UDP, "connected: soft0 by UDP (2 lanes), ");
}

static void devices_tell_their_best_path_and_no_speed(void **state)
{
	static const struct {
		const char *shm;
		enum snt_path path;
	} cases[] = { { "on", SNT_PATH_SHM }, { "off", SNT_PATH_UDP } };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct snt_ctx_opts opts = { .size = sizeof(opts),
					     .soft = SNT_SOFT_ONLY };
		struct snt_device_info info = { .size = sizeof(info) };
		struct snt_gid_info gid = { .size = sizeof(gid) };
		struct snt_ctx *ctx;

		setenv("SENNIT_SOFT_SHM", cases[i].shm, 1);
		assert_success(snt_ctx_create(&opts, &ctx));
		assert_success(snt_device_query(snt_ctx_device(ctx, 0), &info));
		assert_int_equal(info.path, cases[i].path);
		assert_int_equal(info.speed_mbps, 0);
		assert_success(snt_device_query_gid(snt_ctx_device(ctx, 0), 0, &gid));
		assert_int_not_equal(gid.netdev, 0);
		assert_success(snt_ctx_destroy(ctx));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes_tell_their_path),
		cmocka_unit_test(devices_tell_their_best_path_and_no_speed),
	};

	return cmocka_run_group_tests_name("shm-lane-path", tests, NULL, NULL);
}
