/* SPDX-License-Identifier: MIT */
/* Connections used in ways that were not intended. */
#include "lib/conn_kit.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn/conn_loop.h"

static struct snt_conn *never;

/* They are refused here, before the peer hears of them. */
static void options_out_of_range(void **state)
{
	struct snt_conn_opts opts;
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
#define REFUSED(phrase)                                                                \
	assert_error(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect, &never), \
		     EINVAL, phrase)
	kit.qp[0].mtu = 300;
	REFUSED("mtu 300");
	kit.qp[0].mtu = 0;
	kit.qp[0].scheme = (enum snt_scheme)257; /* whose lower bits are one */
	REFUSED("scheme is 257");
	kit.qp[0].scheme = SNT_SCHEME_SPRAY;
	kit.qp[0].flags = 256;
	REFUSED("flags is 256");
	kit.qp[0].flags = 0;
	kit.qp[0].cq = kit.end[1].cq;
	REFUSED("another context");
	kit.qp[0].cq = kit.end[0].cq;
	opts = kit.connect;
	kit.connect.data = NULL;
	REFUSED("5 bytes of data are NULL");
	kit.connect = opts;
	kit.to.secret_length = 16;
	REFUSED("secret of 16 bytes is NULL");
	kit_close(&kit);
}

static void endpoints_out_of_range(void **state)
{
	struct snt_endpoint good;
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	good = kit.to;
#define REFUSED_BY_BOTH(phrase)                                               \
	do {                                                                  \
		REFUSED(phrase);                                              \
		assert_error(snt_listener_create(kit.end[1].loop, &kit.to,    \
						 &kit.listen, &kit.listener), \
			     EINVAL, phrase);                                 \
		kit.to = good;                                                \
	} while (0)
	kit.to.carrier = (enum snt_carrier)4;
	REFUSED_BY_BOTH("carrier is 4");
	kit.to.detect_ns = 49999999;
	REFUSED_BY_BOTH("detect_ns is 49999999");
	kit.to.detect_ns = UINT64_C(3600000000001);
	REFUSED_BY_BOTH("detect_ns is 3600000000001");
	kit.to.name = "";
	REFUSED("has 0 characters");
	kit.to.name = "a name of thirty-two characters.";
	REFUSED("has 32 characters; it must be 1 to 31");
	kit.to = good;
	kit.to.size = 0;
	REFUSED_BY_BOTH("struct snt_endpoint: set .size");
	assert_error(snt_conn_connect(kit.end[0].loop, NULL, &kit.connect, &never),
		     EINVAL, "host is missing");
	kit_close(&kit);
}

/* The listener does not use what is for the end that connects, and the other way round. */
static void one_endpoint_for_both_ends(void **state)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.to.source = kit.end[0].address;
	kit.connect.retries = kit.accept.retries = 1;
	kit.at = kit.to;
	kit.at.name = "a name that is too long for any connection";
	kit.to.name = "the one that connects";
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_string_equal(info.peer_name, "");
	assert_success(snt_conn_query(kit.end[1].conn, &info));
	assert_string_equal(info.peer_name, "the one that connects");
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* A connection drives its QP, so both belong to one thread. */
static void cq_of_another_loop(void **state)
{
	struct snt_cq_opts opts = { .size = sizeof(opts) };
	struct snt_loop *other;
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	assert_success(snt_loop_create(kit.end[0].ctx, NULL, &other));
	opts.loop = other;
	assert_success(snt_cq_create(kit.end[0].ctx, &opts, &kit.qp[0].cq));
	assert_error(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect, &never),
		     EINVAL, "snt_qp_opts.cq is in another loop");
	opts.loop = NULL;
	kit.qp[0].recv_cq = kit.qp[0].cq;
	assert_success(snt_cq_create(kit.end[0].ctx, &opts, &kit.qp[0].cq));
	assert_error(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect, &never),
		     EINVAL, "snt_qp_opts.recv_cq is in another loop");
	assert_error(snt_loop_destroy(other), EBUSY, "CQs left");
	assert_success(snt_cq_destroy(kit.qp[0].cq));
	assert_success(snt_cq_destroy(kit.qp[0].recv_cq));
	assert_success(snt_loop_destroy(other));
	kit_close(&kit);
}

/* What lies behind the structure of an older header is not looked at. */
static void options_of_an_older_header(void **state)
{
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	kit.qp[0].size = offsetof(struct snt_qp_opts, adopted);
	kit.qp[0].adopted_count = 77;
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* A time that does not fit is as good as for ever. */
static void times_too_long_for_the_clock_mean_for_ever(void **state)
{
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.to.setup_ns = kit.at.setup_ns = UINT64_MAX;
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* To look, without waiting, is to dispatch. */
static void looking_makes_progress(void **state)
{
	struct kit kit;
	int ret;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	for (int i = 0; i < 2000; i++) {
		ret = snt_conn_wait(kit.end[0].conn, 0);
		if (!ret)
			break;
		assert_error(ret, ETIME, "timed out");
		assert_success(snt_loop_wait(kit.end[1].loop, 1000000));
	}
	assert_int_equal(ret, 0);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static void destroy_listener(struct snt_timer *timer)
{
	struct kit *kit = timer->arg;

	assert_success(snt_listener_destroy(kit->listener));
	kit->listener = NULL;
}

static void a_listener_that_goes_while_waited_for(void **state)
{
	struct snt_timer timer = { .fired = destroy_listener };
	struct snt_conn *conn;
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.listen.requested = NULL;
	kit_listen(&kit);
	timer.arg = &kit;
	assert_success(snt_timer_start(kit.end[1].loop, &timer, 0));
	assert_error(snt_listener_wait(kit.listener, -1, &conn), ECANCELED,
		     "destroyed meanwhile");
	kit_close(&kit);
}

static int tidy_up(struct kit *kit)
{
	return snt_listener_destroy(kit->listener) != -ECHILD ||
	       snt_conn_abort(kit->end[0].conn, NULL) != -ECHILD ||
	       snt_conn_destroy(kit->end[0].conn) != -ECHILD ||
	       snt_conn_wait(kit->end[0].conn, 0) != -ECHILD ||
	       snt_loop_destroy(kit->end[0].loop) != -ECHILD ||
	       snt_conn_connect(kit->end[0].loop, &kit->to, &kit->connect, &never) !=
		       -ECHILD;
}

/* What a child of the process does about its inheritance is nothing to the parent. */
static void a_child_that_tidies_up(void **state)
{
	struct kit kit;
	int status;
	pid_t child;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	child = fork();
	if (!child)
		_exit(tidy_up(&kit));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kit_check_data(&kit, 0);
	kit_disconnect(&kit);
	kit_destroy_conns(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static struct snt_listener *nowhere;

static void refuse_to_connect(struct kit *kit, int error, const char *phrase)
{
	assert_error(snt_conn_connect(kit->end[0].loop, &kit->to, &kit->connect,
				      &never),
		     error, phrase);
}

static void refuse_to_listen(struct kit *kit, int error, const char *phrase)
{
	assert_error(snt_listener_create(kit->end[1].loop, &kit->at, &kit->listen,
					 &nowhere),
		     error, phrase);
}

/* A sentence says which address was meant, and which there are. */
static void foreign_addresses_are_named(void **state)
{
	char present[128];
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_CM, 1);
	kit_listen(&kit);
	snprintf(present, sizeof(present), "192.0.2.1; present: %s",
		 kit.end[0].address);
	kit.to.source = "192.0.2.1";
	refuse_to_connect(&kit, EADDRNOTAVAIL, present);
	kit.to.source = "there.test";
	refuse_to_connect(&kit, EINVAL, "source \"there.test\"");
	kit.to.source = NULL;
	kit.to.host = "2001:db8::1";
	refuse_to_connect(&kit, ENETUNREACH, "leads to [2001:db8::1]:");
	refuse_to_connect(&kit, ENETUNREACH, kit.end[0].address);
	kit.at.host = "192.0.2.1";
	snprintf(present, sizeof(present), "192.0.2.1 to listen on; present: %s",
		 kit.end[1].address);
	refuse_to_listen(&kit, EADDRNOTAVAIL, present);
	kit.at.host = kit.end[1].address;
	kit.at.port = kit.to.port;
	snprintf(present, sizeof(present), "%s:%u is in use", kit.end[1].address,
		 kit.at.port);
	refuse_to_listen(&kit, EADDRINUSE, present);
	kit_close(&kit);
}

static bool is_over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER];
}

static void foreign_addresses_are_named_by_tcp(void **state)
{
	char where[128];
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	kit.to.source = "192.0.2.1";
	refuse_to_connect(&kit, EADDRNOTAVAIL, "192.0.2.1");
	kit.to.source = NULL;
	kit.at.host = "192.0.2.1";
	refuse_to_listen(&kit, EADDRNOTAVAIL, "192.0.2.1");
	kit.at.host = kit.end[1].address;
	kit.at.port = kit.to.port;
	snprintf(where, sizeof(where), "%s:%u", kit.end[1].address, kit.at.port);
	refuse_to_listen(&kit, EADDRINUSE, where);
	/* The peer is gone. */
	assert_success(snt_listener_destroy(kit.listener));
	kit.listener = NULL;
	kit_connect(&kit);
	kit_until(&kit, is_over);
	assert_int_equal(kit_status(&kit, 0), -ECONNREFUSED);
	assert_non_null(strstr(kit_text(&kit, 0), where));
	kit.to.port = 0;
	refuse_to_connect(&kit, EINVAL, "port is 0");
	kit.to.host = NULL;
	refuse_to_connect(&kit, EINVAL, "host is missing");
	kit_close(&kit);
}

static unsigned looks;

static void take_nothing(struct snt__watch *watch, uint32_t events)
{
	(void)watch;
	(void)events;
	looks++;
}

/* An fd that is always ready does not keep dispatch from returning. */
static void a_peer_that_never_stops(void **state)
{
	struct snt__watch watch = { .ready = take_nothing };
	struct snt__conn_loop *conn_loop;
	struct kit kit;
	int end[2];

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit_listen(&kit);
	assert_success(pipe(end));
	assert_int_equal(write(end[1], "x", 1), 1);
	watch.fd = end[0];
	assert_success(snt__conn_loop_get(kit.end[1].loop, &conn_loop));
	assert_success(snt__conn_loop_watch(conn_loop, &watch, EPOLLIN));
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_true(looks > 16);
	snt__conn_loop_unwatch(conn_loop, &watch);
	close(end[0]);
	close(end[1]);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static bool has_ipv6(void)
{
	const struct sockaddr_in6 here = { .sin6_family = AF_INET6,
					   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool has = !bind(fd, (const struct sockaddr *)&here, sizeof(here));

	close(fd);
	return has;
}

/* Without a host a listener is there for IPv4 and, where that is, for IPv6. */
static void everywhere(void **state)
{
	static const char *const host[] = { "127.0.0.1", "::1" };
	struct snt_conn_info info = { .size = sizeof(info) };
	struct kit kit;

	(void)state;
	kit_open(&kit, SNT_CARRIER_TCP, 1);
	kit.at.host = NULL;
	kit_listen(&kit);
	for (int i = 0; i < 1 + has_ipv6(); i++) {
		kit.to.host = host[i];
		kit_connect(&kit);
		kit_until(&kit, kit_both_up);
		assert_success(snt_conn_query(kit.end[1].conn, &info));
		assert_memory_equal(info.peer_address,
				    i ? "[::1]:" : "127.0.0.1:", i ? 6 : 10);
		kit_disconnect(&kit);
		kit_destroy_conns(&kit);
	}
	kit_close(&kit);
}

static void make_idle(struct snt_loop *loop)
{
	while (snt_loop_arm(loop))
		assert_success(snt_loop_poll(loop, 0));
}

static bool connector_over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER];
}

/* The port is that of the first listener, which may be destroyed before those that
 * share it. */
static void a_port_that_is_shared(void **state)
{
	struct snt_listener *first;
	struct kit kit;

	kit_open(&kit, *(enum snt_carrier *)*state, 1);
	assert_success(snt_listener_create(kit.end[1].loop, &kit.at, NULL, &first));
	kit.listen.share = first;
	assert_error(snt_listener_create(kit.end[0].loop, NULL, &kit.listen,
					 &kit.listener),
		     EINVAL, "of another context");
	/* With the same endpoint, whose port and address are taken by the first. */
	kit.at.port = snt_listener_port(first);
	kit_listen(&kit);
	assert_int_equal(kit.to.port, snt_listener_port(first));
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_destroy_conns(&kit);
	assert_success(snt_listener_destroy(first));
	kit_connect(&kit);
	assert_int_equal(snt_conn_wait_over(kit.end[0].conn, -1), -ECONNREFUSED);
	kit_close(&kit);
}

/* Then they are the first one's own again. */
static void a_port_that_is_shared_no_more(void **state)
{
	struct snt_listener *first;
	struct kit kit;

	kit_open(&kit, *(enum snt_carrier *)*state, 1);
	assert_success(snt_listener_create(kit.end[1].loop, &kit.at, NULL, &first));
	kit.listen = (struct snt_listener_opts){ .size = sizeof(kit.listen),
						 .share = first };
	kit_listen(&kit);
	assert_success(snt_listener_destroy(kit.listener));
	kit.listener = first;
	kit_connect(&kit);
	while (snt_listener_wait(first, 0, &kit.end[1].conn))
		kit_turn(&kit);
	assert_success(snt_conn_accept(kit.end[1].conn, &kit.accept));
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	kit_close(&kit);
}

/* A peer that was assigned to a listener which closed with its loop before it was
 * there. */
static void a_peer_that_comes_too_late(void **state)
{
	struct snt_listener_opts opts = { .size = sizeof(opts) };
	struct snt_listener *late;
	struct snt_loop *loop;
	struct kit kit;

	kit_open(&kit, *(enum snt_carrier *)*state, 1);
	kit.listen.requested = NULL;
	kit_listen(&kit);
	assert_success(snt_loop_create(kit.end[1].ctx, NULL, &loop));
	opts.share = kit.listener;
	assert_success(snt_listener_create(loop, NULL, &opts, &late));
	make_idle(loop);
	kit_connect(&kit);
	while (snt_loop_timeout(loop))
		kit_turn(&kit);
	assert_success(snt_listener_destroy(late));
	assert_success(snt_loop_destroy(loop));
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), -ECONNREFUSED);
	kit_close(&kit);
}

int main(void)
{
	static enum snt_carrier tcp = SNT_CARRIER_TCP, cm = SNT_CARRIER_CM;
#define BOTH(test)                                   \
	{ #test " (TCP)", test, NULL, NULL, &tcp },  \
	{                                            \
#test " (CM)", test, NULL, NULL, &cm \
	}

	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_out_of_range),
		cmocka_unit_test(endpoints_out_of_range),
		cmocka_unit_test(one_endpoint_for_both_ends),
		cmocka_unit_test(cq_of_another_loop),
		cmocka_unit_test(options_of_an_older_header),
		cmocka_unit_test(times_too_long_for_the_clock_mean_for_ever),
		cmocka_unit_test(looking_makes_progress),
		cmocka_unit_test(a_listener_that_goes_while_waited_for),
		cmocka_unit_test(a_child_that_tidies_up),
		cmocka_unit_test(foreign_addresses_are_named),
		cmocka_unit_test(foreign_addresses_are_named_by_tcp),
		cmocka_unit_test(a_peer_that_never_stops),
		cmocka_unit_test(everywhere),
		BOTH(a_port_that_is_shared),
		BOTH(a_port_that_is_shared_no_more),
		BOTH(a_peer_that_comes_too_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
