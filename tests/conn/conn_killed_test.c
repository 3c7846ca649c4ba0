/* SPDX-License-Identifier: MIT */
/* A peer in another process, which is killed in the middle of everything. */
#include "lib/conn_kit.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DETECT_MS 1000
/* For a peer that must not be taken for dead: its device may have to wait for a processor. */
#define PATIENT_MS 2500

static enum snt_carrier carrier_of(void **state)
{
	return *(enum snt_carrier *)*state;
}

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* The listening half of a kit, in the parent; the other in a child. */
struct pair {
	struct kit kit;
	pid_t child;
	int up;	  /* the child says that it is connected */
	int hold; /* its own child lives until this is closed */
};

/* A process that does nothing but live, until the pipe is closed at the other end. */
static void live_on(int hold[2])
{
	char byte;

	alarm(60); /* of a test that failed */
	close(hold[1]);
	_exit(read(hold[0], &byte, 1) ? 1 : 0);
}

/* Such a process. When this returns it has run the handlers of its fork, by which it closes what
 * is its parent's. */
static pid_t fork_to_live_on(int hold[2])
{
	int lives[2];
	char byte;
	pid_t child;

	if (pipe(lives))
		return -1;
	child = fork();
	if (!child) {
		if (write(lives[1], "l", 1) != 1)
			_exit(1);
		live_on(hold);
	}
	close(lives[1]);
	if (child > 0 && read(lives[0], &byte, 1) != 1)
		child = -1;
	close(lives[0]);
	return child;
}

static void child_fails(const char *what)
{
	fprintf(stderr, "child: %s: %s\n", what, snt_err_text());
	_exit(1);
}

/* The program computes from SIGUSR1 to SIGUSR2, in a callback: a handler that waits could
 * hold up its thread anywhere, also where it has a lock of the device's. */
static struct snt_loop *child_loop;
static struct snt_call nothing;

static void do_nothing(struct snt_call *call)
{
	sigset_t until;

	(void)call;
	sigemptyset(&until);
	sigaddset(&until, SIGUSR2);
	sigwaitinfo(&until, NULL);
}

static void call_do_nothing(int signal)
{
	(void)signal;
	snt_loop_call(child_loop, &nothing);
}

static void listen_to_signals(struct snt_loop *loop)
{
	child_loop = loop;
	nothing.run = do_nothing;
	signal(SIGUSR1, call_do_nothing);
}

static void block_later_signal(void)
{
	sigset_t later;

	sigemptyset(&later);
	sigaddset(&later, SIGUSR2);
	sigprocmask(SIG_BLOCK, &later, NULL);
}

/* Connects, forks if it is to, says so, and keeps the loop running until it is told to stop. */
static void run_child(const struct snt_endpoint *like, const char *address, int up,
		      int port_from, int hold[2])
{
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .soft = SNT_SOFT_ONLY,
					 .soft_addresses = address };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_qp_opts qp = { .size = sizeof(qp) };
	struct snt_conn_opts opts = { .size = sizeof(opts), .qp = &qp };
	struct snt_endpoint to = *like;
	struct snt_conn *conn;
	struct snt_loop *loop = NULL;
	struct snt_ctx *ctx;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	block_later_signal();
	if (read(port_from, &to.port, sizeof(to.port)) != sizeof(to.port))
		_exit(1);
	if (snt_ctx_create(&ctx_opts, &ctx) || snt_loop_create(ctx, NULL, &loop))
		child_fails("set-up");
	listen_to_signals(loop);
	cq_opts.loop = loop;
	if (snt_cq_create(ctx, &cq_opts, &qp.cq))
		child_fails("CQ");
	if (snt_conn_connect(loop, &to, &opts, &conn) ||
	    snt_conn_wait(conn, KIT_WAIT_NS))
		child_fails("connect");
	if (hold[0] >= 0 && fork_to_live_on(hold) < 0)
		_exit(1);
	close(hold[1]);
	if (write(up, "u", 1) != 1)
		_exit(1);
	snt_conn_wait_over(conn, -1);
	_exit(0);
}

static void start(struct pair *pair, enum snt_carrier carrier, unsigned detect_ms,
		  bool forks)
{
	const char *host, *own;
	int up[2], port[2], hold[2] = { -1, -1 };
	uint16_t number;

	/* The parent's: a child has addresses of its own. */
	kit_leave_failed();
	host = kit_address(1, 0);
	own = kit_address(2, 0);
	/* Soft devices have threads, which a fork does not take along. */
	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(port), 0);
	if (forks)
		assert_int_equal(pipe(hold), 0);
	memset(pair, 0, sizeof(*pair));
	pair->child = fork();
	assert_true(pair->child >= 0);
	if (!pair->child) {
		struct snt_endpoint to = {
			.size = sizeof(to),
			.host = host,
			.carrier = carrier,
			.detect_ns = UINT64_C(1000000) * detect_ms,
		};

		run_child(&to, own, up[1], port[0], hold);
	}
	close(up[1]);
	close(hold[0]);
	pair->hold = hold[1];
	kit_open(&pair->kit, carrier, 1);
	pair->kit.at.detect_ns = UINT64_C(1000000) * detect_ms;
	kit_listen(&pair->kit);
	number = snt_listener_port(pair->kit.listener);
	assert_int_equal(write(port[1], &number, sizeof(number)), sizeof(number));
	close(port[0]);
	close(port[1]);
	pair->up = up[0];
}

/* When this returns its sockets are closed, however long it waits for a processor to die on. */
static void kill_child(struct pair *pair)
{
	int status;

	kill(pair->child, SIGKILL);
	assert_int_equal(waitpid(pair->child, &status, 0), pair->child);
}

static bool acceptor_up(struct kit *kit)
{
	return kit->end[1].events[SNT_CONN_CONNECTED];
}

static bool acceptor_over(struct kit *kit)
{
	return kit->end[1].events[SNT_CONN_OVER];
}

/* Time of this process since the peer was gone. A turn sleeps for 10 ms; one that takes longer
 * has waited for a processor, which says nothing of how long detecting takes. */
#define TURN_MS_MAX 20u

static struct {
	uint64_t looked_at;
	unsigned own_ms;
} watch;

static bool acceptor_over_by_now(struct kit *kit)
{
	uint64_t now = now_ms(), turn = now - watch.looked_at;

	watch.looked_at = now;
	watch.own_ms += turn < TURN_MS_MAX ? (unsigned)turn : TURN_MS_MAX;
	return acceptor_over(kit);
}

static void expect_over_in_time(struct kit *kit)
{
	uint64_t begin = now_ms();

	watch.looked_at = begin;
	watch.own_ms = 0;
	kit_until(kit, acceptor_over_by_now);
	print_message("# noticed after %u ms, %u of them its own\n",
		      (unsigned)(now_ms() - begin), watch.own_ms);
	assert_true(watch.own_ms < 2 * DETECT_MS);
}

static void a_killed_peer_is_noticed(void **state)
{
	struct pair pair;

	start(&pair, carrier_of(state), DETECT_MS, false);
	kit_until(&pair.kit, acceptor_up);
	kill_child(&pair);
	expect_over_in_time(&pair.kit);
	assert_int_not_equal(kit_status(&pair.kit, 1), 0);
	close(pair.up);
	kit_close(&pair.kit);
}

/* A soft device stops with its process, whatever the carrier's kernel answers. */
static void stop_peer(enum snt_carrier carrier, bool busy)
{
	struct pair pair;
	struct kit_end *end = &pair.kit.end[1];
	struct snt_op op = { 0 };
	char byte;

	start(&pair, carrier, DETECT_MS, false);
	kit_until(&pair.kit, acceptor_up);
	assert_int_equal(read(pair.up, &byte, 1), 1);
	kill(pair.child, SIGSTOP);
	if (busy) {
		struct snt_sge sge = { end->mem, end->bytes, 64 };

		assert_success(snt_op_send(snt_conn_qp(end->conn), &op, &sge));
	}
	expect_over_in_time(&pair.kit);
	assert_int_not_equal(kit_status(&pair.kit, 1), 0);
	assert_false(snt_op_pending(&op));
	kill_child(&pair);
	close(pair.up);
	kit_close(&pair.kit);
}

static void a_stopped_idle_peer_is_noticed(void **state)
{
	stop_peer(carrier_of(state), false);
}

static void a_stopped_busy_peer_is_noticed(void **state)
{
	stop_peer(carrier_of(state), true);
}

/* A peer whose program does nothing for longer than that is not dead: its device answers. */
static void a_peer_that_does_not_dispatch_is_not_dead(void **state)
{
	struct pair pair;
	uint64_t begin;
	int status;
	char byte;

	start(&pair, carrier_of(state), PATIENT_MS, false);
	kit_until(&pair.kit, acceptor_up);
	assert_int_equal(read(pair.up, &byte, 1), 1);
	kill(pair.child, SIGUSR1);
	begin = now_ms();
	while (now_ms() - begin < 2 * PATIENT_MS)
		kit_turn(&pair.kit);
	assert_int_equal(pair.kit.end[1].events[SNT_CONN_OVER], 0);
	kill(pair.child, SIGUSR2);
	assert_success(snt_conn_disconnect(pair.kit.end[1].conn, 0));
	kit_until(&pair.kit, acceptor_over);
	assert_int_equal(kit_status(&pair.kit, 1), 0);
	assert_int_equal(waitpid(pair.child, &status, 0), pair.child);
	assert_int_equal(status, 0);
	close(pair.up);
	kit_close(&pair.kit);
}

/* The peer's own child, which lives on, has a copy of all fds that the peer had. */
static void a_killed_peer_whose_child_lives_is_noticed(void **state)
{
	struct pair pair;
	char byte;

	start(&pair, carrier_of(state), DETECT_MS, true);
	kit_until(&pair.kit, acceptor_up);
	assert_int_equal(read(pair.up, &byte, 1), 1);
	kill_child(&pair);
	expect_over_in_time(&pair.kit);
	/* A TCP connection ends with its last socket, at once. */
	if (carrier_of(state) == SNT_CARRIER_TCP)
		assert_int_equal(kit_status(&pair.kit, 1), -ECONNRESET);
	close(pair.hold);
	close(pair.up);
	kit_close(&pair.kit);
}

/* A server, killed and started again at the same port. */

static struct snt_qp_opts server_qp = { .size = sizeof(server_qp) };

static void accept_all(void *arg, struct snt_listener *listener, struct snt_conn *conn)
{
	struct snt_conn_opts opts = { .size = sizeof(opts), .qp = &server_qp };

	(void)arg;
	(void)listener;
	if (snt_conn_accept(conn, &opts))
		child_fails("accept");
}

/* Waits for the port to listen at, and says which it is. */
static void run_server(enum snt_carrier carrier, const char *host, int from, int to)
{
	struct snt_ctx_opts ctx_opts = { .size = sizeof(ctx_opts),
					 .soft = SNT_SOFT_ONLY,
					 .soft_addresses = host };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };
	struct snt_endpoint at = { .size = sizeof(at),
				   .host = host,
				   .carrier = carrier };
	struct snt_listener_opts opts = { .size = sizeof(opts),
					  .requested = accept_all };
	struct snt_listener *listener;
	struct snt_ctx *ctx;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(from, &at.port, sizeof(at.port)) != sizeof(at.port))
		_exit(1);
	if (snt_ctx_create(&ctx_opts, &ctx) ||
	    snt_loop_create(ctx, NULL, &cq_opts.loop) ||
	    snt_cq_create(ctx, &cq_opts, &server_qp.cq) ||
	    snt_listener_create(cq_opts.loop, &at, &opts, &listener))
		child_fails("server");
	at.port = snt_listener_port(listener);
	if (write(to, &at.port, sizeof(at.port)) != sizeof(at.port))
		_exit(1);
	while (snt_loop_wait(cq_opts.loop, -1) >= 0)
		;
	_exit(1);
}

struct server {
	pid_t child;
	int to, from;
};

static void fork_server(struct server *server, enum snt_carrier carrier,
			const char *host)
{
	int to[2], from[2];

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	server->child = fork();
	assert_true(server->child >= 0);
	if (!server->child)
		run_server(carrier, host, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	server->to = to[1];
	server->from = from[0];
}

/* Returns the port. */
static uint16_t start_server(struct server *server, uint16_t port)
{
	assert_int_equal(write(server->to, &port, sizeof(port)), sizeof(port));
	assert_int_equal(read(server->from, &port, sizeof(port)), sizeof(port));
	return port;
}

static void kill_server(struct server *server)
{
	int status;

	kill(server->child, SIGKILL);
	assert_int_equal(waitpid(server->child, &status, 0), server->child);
	close(server->to);
	close(server->from);
}

static bool connector_up(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_CONNECTED] >
	       (kit->end[0].events[SNT_CONN_RETRYING] != 0);
}

static bool connector_retries(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_RETRYING];
}

static bool connector_over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER];
}

static void a_server_that_is_lost_is_connected_to_again(void **state)
{
	enum snt_carrier carrier = carrier_of(state);
	struct server server[2];
	const char *host;
	struct kit kit;

	kit_leave_failed();
	host = kit_address(2, 0);
	/* Both before there is a soft device in this process. */
	for (unsigned i = 0; i < 2; i++)
		fork_server(&server[i], carrier, host);
	kit_open(&kit, carrier, 1);
	kit.to.host = host;
	kit.to.port = start_server(&server[0], 0);
	kit.to.detect_ns = UINT64_C(1000000) * DETECT_MS;
	kit.connect.retries = 1000;
	kit_connect(&kit);
	kit_until(&kit, connector_up);
	kill_server(&server[0]);
	kit_until(&kit, connector_retries);
	assert_int_equal(start_server(&server[1], kit.to.port), kit.to.port);
	kit_until(&kit, connector_up);
	assert_int_equal(kit.end[0].events[SNT_CONN_OVER], 0);
	assert_success(snt_conn_disconnect(kit.end[0].conn, 0));
	kit_until(&kit, connector_over);
	assert_int_equal(kit_status(&kit, 0), 0);
	kill_server(&server[1]);
	kit_close(&kit);
}

static int try_tcp(const char *host, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ret;

	assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
	ret = connect(fd, (struct sockaddr *)&to, sizeof(to)) ? -errno : 0;
	close(fd);
	return ret;
}

static void a_childs_copy_of_a_listener_does_not_listen(void **state)
{
	struct kit kit;
	int hold[2], status;
	pid_t child;

	kit_open(&kit, carrier_of(state), 1);
	kit_listen(&kit);
	assert_int_equal(pipe(hold), 0);
	child = fork_to_live_on(hold);
	assert_true(child > 0);
	close(hold[0]);
	/* The parent's own is undisturbed. */
	kit_connect(&kit);
	kit_until(&kit, kit_both_up);
	kit_check_data(&kit, 0);
	kit_disconnect(&kit);
	kit_destroy_conns(&kit);

	kit.at.port = snt_listener_port(kit.listener);
	assert_success(snt_listener_destroy(kit.listener));
	kit.listener = NULL;
	if (carrier_of(state) == SNT_CARRIER_TCP)
		assert_int_equal(try_tcp(kit.at.host, kit.at.port), -ECONNREFUSED);
	kit_listen(&kit);
	close(hold[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kit_close(&kit);
}

int main(void)
{
	static enum snt_carrier tcp = SNT_CARRIER_TCP, cm = SNT_CARRIER_CM;
	const struct CMUnitTest tests[] = {
		{ "a_childs_copy_of_a_listener_does_not_listen (TCP)",
		  a_childs_copy_of_a_listener_does_not_listen, NULL, NULL, &tcp },
		{ "a_childs_copy_of_a_listener_does_not_listen (CM)",
		  a_childs_copy_of_a_listener_does_not_listen, NULL, NULL, &cm },
		{ "a_server_that_is_lost_is_connected_to_again (TCP)",
		  a_server_that_is_lost_is_connected_to_again, NULL, NULL, &tcp },
		{ "a_server_that_is_lost_is_connected_to_again (CM)",
		  a_server_that_is_lost_is_connected_to_again, NULL, NULL, &cm },
		{ "a_killed_peer_is_noticed (TCP)", a_killed_peer_is_noticed, NULL,
		  NULL, &tcp },
		{ "a_killed_peer_is_noticed (CM)", a_killed_peer_is_noticed, NULL, NULL,
		  &cm },
		{ "a_killed_peer_whose_child_lives_is_noticed (TCP)",
		  a_killed_peer_whose_child_lives_is_noticed, NULL, NULL, &tcp },
		{ "a_killed_peer_whose_child_lives_is_noticed (CM)",
		  a_killed_peer_whose_child_lives_is_noticed, NULL, NULL, &cm },
		{ "a_stopped_idle_peer_is_noticed (TCP)",
		  a_stopped_idle_peer_is_noticed, NULL, NULL, &tcp },
		{ "a_stopped_idle_peer_is_noticed (CM)", a_stopped_idle_peer_is_noticed,
		  NULL, NULL, &cm },
		{ "a_stopped_busy_peer_is_noticed (TCP)",
		  a_stopped_busy_peer_is_noticed, NULL, NULL, &tcp },
		{ "a_stopped_busy_peer_is_noticed (CM)", a_stopped_busy_peer_is_noticed,
		  NULL, NULL, &cm },
		{ "a_peer_that_does_not_dispatch_is_not_dead (TCP)",
		  a_peer_that_does_not_dispatch_is_not_dead, NULL, NULL, &tcp },
		{ "a_peer_that_does_not_dispatch_is_not_dead (CM)",
		  a_peer_that_does_not_dispatch_is_not_dead, NULL, NULL, &cm },
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
