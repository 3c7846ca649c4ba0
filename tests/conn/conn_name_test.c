/* SPDX-License-Identifier: MIT */
/*
 * Hosts by name. getaddrinfo() is replaced: names under .test are found when the test
 * says so, and not before.
 */
#include "lib/conn_kit.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "conn/lookup.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned asked, answers; /* threads that wait, and how many of them may go on */
static const char *answer;	/* a numeric address; NULL: there is none */
static int failure;
static pthread_t owner;
static atomic_bool blocked_owner;
static atomic_uint resolver_calls;

int __real_getaddrinfo(const char *host, const char *service,
		       const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service,
		       const struct addrinfo *hints, struct addrinfo **list);

int __wrap_getaddrinfo(const char *host, const char *service,
		       const struct addrinfo *hints, struct addrinfo **list)
{
	char found[64] = "";
	int ret;

	atomic_fetch_add(&resolver_calls, 1);
	if (!host || !strstr(host, ".test") || hints->ai_flags & AI_NUMERICHOST)
		return __real_getaddrinfo(host, service, hints, list);
	if (pthread_equal(pthread_self(), owner))
		atomic_store(&blocked_owner, true);
	pthread_mutex_lock(&lock);
	asked++;
	pthread_cond_broadcast(&changed);
	while (!answers)
		pthread_cond_wait(&changed, &lock);
	answers--;
	ret = answer ? 0 : failure;
	if (answer)
		snprintf(found, sizeof(found), "%s", answer);
	pthread_mutex_unlock(&lock);
	return ret ? ret : __real_getaddrinfo(found, service, hints, list);
}

static void open_kit(struct kit *kit, enum snt_carrier carrier)
{
	owner = pthread_self();
	atomic_store(&blocked_owner, false);
	asked = answers = 0;
	failure = EAI_NONAME;
	kit_open(kit, carrier, 1);
	kit_listen(kit);
	kit->to.host = "peer.test";
	answer = kit->end[1].address;
}

static void wait_asked(unsigned count)
{
	pthread_mutex_lock(&lock);
	while (asked < count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void let_go(unsigned count)
{
	pthread_mutex_lock(&lock);
	answers += count;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* Whatever the threads have left to free, they have freed. */
static void wait_for_threads(void)
{
	while (snt__lookup_count())
		sched_yield();
}

static void close_kit(struct kit *kit)
{
	wait_for_threads();
	assert_false(atomic_load(&blocked_owner));
	kit_close(kit);
}

static bool over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER];
}

static void fired(struct snt_timer *timer)
{
	*(bool *)timer->arg = true;
}

static void a_name_does_not_hold_up_the_loop(void **state)
{
	enum snt_carrier carrier = *(enum snt_carrier *)*state;
	struct snt_conn_info info = { .size = sizeof(info) };
	bool timer_fired = false;
	struct snt_timer timer = { .fired = fired, .arg = &timer_fired };
	struct kit kit;

	open_kit(&kit, carrier);
	kit_connect(&kit);
	wait_asked(1);
	assert_success(snt_timer_start(kit.end[0].loop, &timer, 1000000));
	while (!timer_fired)
		kit_turn(&kit);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_int_equal(info.state, SNT_CONN_CONNECTING);
	assert_int_equal(info.attempts, 1);
	let_go(1);
	kit_until(&kit, kit_both_up);
	kit_check_data(&kit, 0);
	assert_success(snt_conn_query(kit.end[0].conn, &info));
	assert_int_equal(info.attempts, 1);
	kit_disconnect(&kit);
	close_kit(&kit);
}

/* The lock that getaddrinfo() takes would be taken for ever in a child that is forked
 * meanwhile, even if it listens on an address without a name. */
static void numeric_addresses_are_not_looked_for(void **state)
{
	enum snt_carrier carrier = *(enum snt_carrier *)*state;
	unsigned before = atomic_load(&resolver_calls);
	const char *hosts[] = { NULL, NULL };
	struct kit kit;

	kit_open(&kit, carrier, 1);
	hosts[1] = kit.end[1].address;
	for (unsigned i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct snt_listener *listener;

		kit.at.host = hosts[i];
		assert_success(snt_listener_create(kit.end[1].loop, &kit.at,
						   &kit.listen, &listener));
		assert_success(snt_listener_destroy(listener));
	}
	kit_listen(&kit);
	kit.to.source = kit.end[0].address;
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	assert_int_equal(atomic_load(&resolver_calls), before);
	kit_disconnect(&kit);
	kit_close(&kit);
}

static void an_invalid_name(void **state)
{
	static const struct {
		int failure, status;
	} cases[] = { { EAI_NONAME, -EINVAL }, { EAI_AGAIN, -EHOSTUNREACH } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kit kit;

		open_kit(&kit, SNT_CARRIER_TCP);
		answer = NULL;
		failure = cases[i].failure;
		kit_connect(&kit);
		let_go(1);
		kit_until(&kit, over);
		assert_int_equal(kit_status(&kit, 0), cases[i].status);
		assert_non_null(strstr(kit_text(&kit, 0), "peer.test"));
		close_kit(&kit);
	}
}

/* Found at the second attempt. */
static void a_name_that_is_found_later(void **state)
{
	struct kit kit;

	(void)state;
	open_kit(&kit, SNT_CARRIER_TCP);
	kit.connect.retries = 3;
	answer = NULL;
	failure = EAI_AGAIN;
	kit_connect(&kit);
	let_go(1);
	while (!kit.end[0].events[SNT_CONN_RETRYING])
		kit_turn(&kit);
	pthread_mutex_lock(&lock);
	answer = kit.end[1].address;
	pthread_mutex_unlock(&lock);
	let_go(1);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	close_kit(&kit);
}

static void given_up_while_it_is_looked_for(void **state)
{
	struct kit kit;

	(void)state;
	/* By aborting it. */
	open_kit(&kit, SNT_CARRIER_TCP);
	kit_connect(&kit);
	wait_asked(1);
	assert_success(snt_conn_abort(kit.end[0].conn, NULL));
	kit_until(&kit, over);
	assert_int_equal(kit_status(&kit, 0), -ECANCELED);
	let_go(1);
	close_kit(&kit);
	/* By destroying it, and the context; the thread ends by itself. */
	open_kit(&kit, SNT_CARRIER_CM);
	kit_connect(&kit);
	wait_asked(1);
	assert_success(snt_conn_destroy(kit.end[0].conn));
	kit.end[0].conn = NULL;
	kit_close(&kit);
	assert_int_equal(snt__lookup_count(), 1);
	let_go(1);
	wait_for_threads();
	/* By its time being up. */
	open_kit(&kit, SNT_CARRIER_TCP);
	kit.to.setup_ns = 20000000;
	kit_connect(&kit);
	kit_until(&kit, over);
	assert_int_equal(kit_status(&kit, 0), -ETIMEDOUT);
	assert_non_null(strstr(kit_text(&kit, 0), "peer.test"));
	let_go(1);
	close_kit(&kit);
}

static void too_many_names(void **state)
{
	struct snt_conn *conn[SNT__LOOKUPS_MAX];
	struct snt_listener *listener;
	struct kit kit;

	(void)state;
	open_kit(&kit, SNT_CARRIER_TCP);
	kit.connect.event = NULL;
	for (unsigned i = 0; i < SNT__LOOKUPS_MAX; i++)
		assert_success(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect,
						&conn[i]));
	assert_error(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect,
				      &kit.end[0].conn),
		     EAGAIN, "64 host names");
	for (unsigned i = 0; i < SNT__LOOKUPS_MAX; i++)
		assert_success(snt_conn_destroy(conn[i]));
	/* They are busy until they have their answers. */
	assert_error(snt_conn_connect(kit.end[0].loop, &kit.to, &kit.connect,
				      &kit.end[0].conn),
		     EAGAIN, "64 host names");
	kit.at.host = "here.test";
	assert_error(snt_listener_create(kit.end[1].loop, &kit.at, &kit.listen,
					 &listener),
		     EAGAIN, "64 host names");
	let_go(SNT__LOOKUPS_MAX);
	close_kit(&kit);
}

static void a_listener_by_name(void **state)
{
	enum snt_carrier carrier = *(enum snt_carrier *)*state;
	struct kit kit;

	open_kit(&kit, carrier);
	assert_success(snt_listener_destroy(kit.listener));
	kit.at.host = "here.test";
	let_go(2);
	kit_listen(&kit);
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_disconnect(&kit);
	close_kit(&kit);
}

static void a_listener_by_an_invalid_name(void **state)
{
	static const struct {
		int failure, status;
	} cases[] = { { EAI_NONAME, EINVAL }, { EAI_AGAIN, EHOSTUNREACH } };
	struct snt_listener *listener;
	struct kit kit;

	(void)state;
	open_kit(&kit, SNT_CARRIER_TCP);
	kit.at.host = "here.test";
	answer = NULL;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		failure = cases[i].failure;
		let_go(1);
		assert_error(snt_listener_create(kit.end[1].loop, &kit.at, &kit.listen,
						 &listener),
			     cases[i].status, "here.test");
	}
	/* One that is found, but belongs to another peer. */
	pthread_mutex_lock(&lock);
	answer = "192.0.2.1";
	pthread_mutex_unlock(&lock);
	let_go(1);
	assert_error(snt_listener_create(kit.end[1].loop, &kit.at, &kit.listen,
					 &listener),
		     EADDRNOTAVAIL, "192.0.2.1");
	close_kit(&kit);
}

static atomic_uint alarms;

static void ring(int number)
{
	(void)number;
	atomic_fetch_add(&alarms, 1);
}

static void ring_every(suseconds_t us)
{
	const struct itimerval every = { { .tv_usec = us }, { .tv_usec = us } };

	assert_success(setitimer(ITIMER_REAL, &every, NULL));
}

/* It is waited for as long as was said, whatever signals come; then it is let go of. */
static void a_listener_by_a_name_that_takes_long(void **state)
{
	const struct sigaction action = { .sa_handler = ring };
	struct snt_listener *listener;
	struct kit kit;
	uint64_t begin, took;

	(void)state;
	assert_success(sigaction(SIGALRM, &action, NULL));
	open_kit(&kit, SNT_CARRIER_TCP);
	kit.at.host = "here.test";
	kit.at.setup_ns = 30000000;
	/* Signals that a busy host delivers late become one. */
	while (atomic_load(&alarms) < 2) {
		begin = snt_loop_now(kit.end[1].loop);
		ring_every(2000);
		assert_error(snt_listener_create(kit.end[1].loop, &kit.at, &kit.listen,
						 &listener),
			     ETIMEDOUT, "\"here.test\" was not resolved within 30 ms");
		ring_every(0);
		took = snt_loop_now(kit.end[1].loop) - begin;
		assert_in_range(took, 30000000, KIT_WAIT_NS);
		let_go(1);
	}
	close_kit(&kit);
}

int main(void)
{
	static enum snt_carrier tcp = SNT_CARRIER_TCP, cm = SNT_CARRIER_CM;
	const struct CMUnitTest tests[] = {
		{ "a_name_does_not_hold_up_the_loop (TCP)",
		  a_name_does_not_hold_up_the_loop, NULL, NULL, &tcp },
		{ "a_name_does_not_hold_up_the_loop (CM)",
		  a_name_does_not_hold_up_the_loop, NULL, NULL, &cm },
		{ "numeric_addresses_are_not_looked_for (TCP)",
		  numeric_addresses_are_not_looked_for, NULL, NULL, &tcp },
		{ "numeric_addresses_are_not_looked_for (CM)",
		  numeric_addresses_are_not_looked_for, NULL, NULL, &cm },
		cmocka_unit_test(an_invalid_name),
		cmocka_unit_test(a_name_that_is_found_later),
		cmocka_unit_test(given_up_while_it_is_looked_for),
		cmocka_unit_test(too_many_names),
		{ "a_listener_by_name (TCP)", a_listener_by_name, NULL, NULL, &tcp },
		{ "a_listener_by_name (CM)", a_listener_by_name, NULL, NULL, &cm },
		cmocka_unit_test(a_listener_by_an_invalid_name),
		cmocka_unit_test(a_listener_by_a_name_that_takes_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
