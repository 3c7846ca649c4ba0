/* SPDX-License-Identifier: MIT */
/* Two ends that connect to each other at the same time. */
#include "lib/test.h"

#include "conn/conn.h"
#include "conn/conn_loop.h"
#include "conn/mac.h"
#include "lib/conn_world.h"

static void good(const char *text)
{
	if (text)
		fail_msg("%s", text);
}

static void expect_text(struct conn_world *world, unsigned end, const char *phrase)
{
	const char *text = conn_world_text(world, end);

	if (!strstr(text, phrase))
		fail_msg("\"%s\" is not in: %s", phrase, text);
}

static unsigned requests;
static struct snt_endpoint back; /* from the second end to the first */

static void requested_here(void *arg, struct snt_listener *listener,
			   struct snt_conn *conn)
{
	(void)arg;
	(void)listener;
	requests++;
	snt_conn_reject(conn, "no peer was to be asked", NULL, 0);
}

static void connect_late(void *arg)
{
	struct conn_world *world = arg;

	assert_success(snt_conn_connect(world->end[1].loop, &back, &world->accept,
					&world->end[1].conn));
}

/* Connects them both ways, so that they meet. Returns the first end's listener.
 * @delay_ns: by how much the second end comes later */
static struct snt_listener *open_meeting(struct conn_world *world, uint64_t seed,
					 uint64_t delay_ns, const char *shared,
					 uint32_t retries)
{
	const struct snt__sim_link_opts link = { .delay_ns = 20000,
						 .jitter_ns = 30000 };
	struct snt__sim_device_opts opts = { .out = &link, .in = &link };
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_listener *second;

	good(conn_world_open(world, seed));
	good(conn_world_add_device(world, 0, &opts));
	good(conn_world_add_device(world, 1, &opts));
	good(conn_world_ready(world));
	world->listen.requested = requested_here;
	world->at.secret = world->to.secret = shared;
	world->at.secret_length = world->to.secret_length = shared ? strlen(shared) : 0;
	/* A listener at the first end, too, for the second to connect to. */
	snt_device_query_gid(snt_ctx_device(world->end[0].ctx, 0), 0, &gid);
	back = world->at;
	back.host = gid.text;
	assert_success(snt_listener_create(world->end[0].loop, &back, &world->listen,
					   &second));
	back.port = snt_listener_port(second);
	back.name = world->to.name = "0 and 1";
	world->connect.meet = second;
	world->connect.retries = world->accept.retries = retries;
	assert_success(snt_listener_create(world->end[1].loop, &world->at,
					   &world->listen, &world->listener));
	world->accept.meet = world->listener;
	world->to.port = snt_listener_port(world->listener);
	assert_success(snt_conn_connect(world->end[0].loop, &world->to, &world->connect,
					&world->end[0].conn));
	snt__sim_at(world->sim, snt__sim_now(world->sim) + delay_ns, connect_late,
		    world);
	good(conn_world_run(world, SNT_CONN_CONNECTED, 5000 * CONN_MS));
	return second;
}

static void meet(uint64_t seed, uint64_t delay_ns, const char *shared)
{
	struct conn_world world;
	struct snt_listener *second = open_meeting(&world, seed, delay_ns, shared, 0);

	good(conn_world_send(&world, 0, 1));
	good(conn_world_send(&world, 1, 2));
	good(conn_world_leave(&world, 0));
	snt_listener_destroy(second);
	good(conn_world_close(&world));
}

static const char *secret(unsigned seed)
{
	return seed & 1 && snt__mac_available() ? "a secret of ours" : NULL;
}

/* However the two attempts fall together, they become one connection. */
static void both_at_once(void **state)
{
	(void)state;
	requests = 0;
	for (unsigned seed = 1; seed <= 20; seed++)
		for (unsigned i = 0; i < 10; i++)
			meet(seed, i * UINT64_C(15000), secret(seed));
	assert_int_equal(requests, 0);
}

/* An end that paused before its next attempt took the other's for a request of a stranger. */
static void both_at_once_after_a_loss(void **state)
{
	(void)state;
	requests = 0;
	for (unsigned seed = 1; seed <= 10; seed++) {
		struct conn_world world;
		struct snt_listener *second = open_meeting(&world, seed, 0, NULL, 100);
		uint64_t until = snt__sim_now(world.sim) + 60000 * CONN_MS;

		snt__sim_device_cut(world.end[0].device[0], true);
		while (!world.end[seed % 2].events[SNT_CONN_RETRYING])
			assert_true(conn_world_step(&world, until));
		/* Backing off for long, as after many attempts; the peer comes first. */
		assert_int_equal(world.end[seed % 2].conn->state, SNT__CONN_PAUSING);
		snt_timer_start(world.end[seed % 2].loop,
				&world.end[seed % 2].conn->timer, 3000 * CONN_MS);
		snt__sim_device_cut(world.end[0].device[0], false);
		while (world.end[0].events[SNT_CONN_CONNECTED] < 2 ||
		       world.end[1].events[SNT_CONN_CONNECTED] < 2)
			assert_true(conn_world_step(&world, until));
		good(conn_world_send(&world, 0, 1));
		good(conn_world_send(&world, 1, 2));
		good(conn_world_leave(&world, 0));
		snt_listener_destroy(second);
		good(conn_world_close(&world));
	}
	assert_int_equal(requests, 0);
}

static struct snt_listener *listen_at_first(struct conn_world *world)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_listener *listener;

	snt_device_query_gid(snt_ctx_device(world->end[0].ctx, 0), 0, &gid);
	back = world->at;
	back.host = gid.text;
	assert_success(snt_listener_create(world->end[0].loop, &back, &world->listen,
					   &listener));
	back.host = "10.77.0.1"; /* where nothing is */
	back.port = snt_listener_port(listener);
	back.name = world->to.name = "0 and 1";
	return listener;
}

static uint64_t identity_of(const struct conn_world *world, unsigned end)
{
	return world->end[end].loop->conn_loop->identity;
}

/* The end whose own attempt does not count waits for the other's, which does not come. It
 * used to wait for ever, and could not be aborted. */
static void await_in_vain(bool aborts)
{
	struct snt__sim_device_opts opts = { 0 };
	struct snt_listener *first;
	struct conn_world world;
	uint64_t until;

	/* Identities are random; the lesser one must be the first end's. */
	for (uint64_t seed = 1;; seed++) {
		good(conn_world_open(&world, seed));
		for (unsigned i = 0; i < 2; i++)
			good(conn_world_add_device(&world, i, &opts));
		good(conn_world_ready(&world));
		first = listen_at_first(&world);
		assert_success(snt_listener_create(world.end[1].loop, &world.at,
						   &world.listen, &world.listener));
		if (identity_of(&world, 0) < identity_of(&world, 1))
			break;
		snt_listener_destroy(first);
		good(conn_world_close(&world));
	}
	world.to.port = snt_listener_port(world.listener);
	world.to.setup_ns = 500 * CONN_MS;
	world.connect.meet = first;
	world.accept.meet = world.listener;
	connect_late(&world);
	assert_success(snt_conn_connect(world.end[0].loop, &world.to, &world.connect,
					&world.end[0].conn));
	until = snt__sim_now(world.sim) + 400 * CONN_MS;
	while (world.end[0].conn->state != SNT__CONN_AWAITING)
		assert_true(conn_world_step(&world, until));
	if (aborts)
		assert_success(snt_conn_abort(world.end[0].conn, "not needed"));
	until = snt__sim_now(world.sim) + 600 * CONN_MS;
	while (!world.end[0].events[SNT_CONN_OVER] && conn_world_step(&world, until))
		;
	assert_int_equal(world.end[0].events[SNT_CONN_OVER], 1);
	assert_int_equal(conn_world_status(&world, 0),
			 aborts ? -ECANCELED : -ETIMEDOUT);
	expect_text(&world, 0, aborts ? "not needed" : "timed out waiting");
	snt_listener_destroy(first);
	good(conn_world_close(&world));
}

static void counterpart_that_never_comes(void **state)
{
	(void)state;
	await_in_vain(false);
	await_in_vain(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_at_once),
		cmocka_unit_test(both_at_once_after_a_loss),
		cmocka_unit_test(counterpart_that_never_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
