/* SPDX-License-Identifier: MIT */
/*
 * Two guests over two rails, of which one gets lost, several times over. The survivor
 * listens, on guest 0; each of the others is a program of its own, on guest 1.
 *
 * usage: conn_lost survive
 *        conn_lost cut|stay|die
 *
 * The others connect. Then nothing of them gets out any more and they are killed; or they
 * leave as they should; or their whole host goes, in the middle of the handshake.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <sennit/sennit.h>

#define ADDRESS	  "10.0.0.1"
#define CONTROL	  "10.99.0.1"
#define PORT	  7500
#define SECOND_NS UINT64_C(1000000000)
#define DETECT_NS (2 * SECOND_NS)
#define SETUP_NS  (4 * SECOND_NS)
/* An emulated processor is late now and then. */
#define SLACK_NS (SECOND_NS / 2)
#define WAIT_NS	 INT64_C(40000000000)

static struct snt_ctx *ctx;
static struct snt_loop *loop;
static struct snt_mem *mem;
static char word[8];
static struct snt_qp_opts qp_opts;
static const char *role;

static _Noreturn void give_up(const char *what)
{
	printf("Bail out! %s: %s: %s\n", role, what, snt_err_text());
	exit(1);
}

static void must(long ret, const char *what)
{
	if (ret < 0)
		give_up(what);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

static void open_all(void)
{
	struct snt_cq_opts cq = { .size = sizeof(cq), .ops = SNT_CQ_OPS_EVENTS };

	must(snt_ctx_create(NULL, &ctx), "context");
	must(snt_loop_create(ctx, NULL, &loop), "loop");
	cq.loop = loop;
	qp_opts = (struct snt_qp_opts){ .size = sizeof(qp_opts) };
	must(snt_cq_create(ctx, &cq, &qp_opts.cq), "CQ");
	must(snt_mem_register(ctx, word, sizeof(word), SNT_ACCESS_LOCAL_WRITE, &mem),
	     "memory");
}

static void close_all(void)
{
	must(snt_cq_destroy(qp_opts.cq), "the CQ");
	must(snt_mem_release(mem), "the memory");
	must(snt_loop_destroy(loop), "the loop");
	must(snt_ctx_destroy(ctx), "the context");
}

/*
 * The control network tells when the survivor is ready for the next one.
 */

static struct sockaddr_in control_address(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_pton(AF_INET, CONTROL, &address.sin_addr);
	return address;
}

static void meet_survivor(void)
{
	struct sockaddr_in address = control_address();
	char answer;

	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
		    read(fd, &answer, 1) == 1) {
			close(fd);
			return;
		}
		close(fd);
		usleep(100000);
	}
}

static int open_control(void)
{
	struct sockaddr_in address = control_address();
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 4))
		give_up("control");
	return fd;
}

static void call_next(int control)
{
	int fd = accept(control, NULL, NULL);

	if (fd < 0 || write(fd, "", 1) != 1)
		give_up("control");
	close(fd);
}

/*
 * Those who get lost
 */

static void say_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		give_up(path);
}

static void happened(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	(void)arg;
	(void)conn;
	/* Nothing of it gets out: no FIN, no DREQ, no NAK. */
	if (event == SNT_CONN_PREPARE && !strcmp(role, "die"))
		say_to("/proc/sysrq-trigger", "b");
}

static void get_lost(struct snt_conn *conn)
{
	struct snt_op op = { 0 };

	must(snt_op_post(snt_conn_qp(conn), &op,
			 &(struct snt_send_wr){ .opcode = SNT_OP_SEND }),
	     "send");
	must(snt_op_wait(&op, WAIT_NS), "the message");
	if (system("tc qdisc add dev rail0 root netem loss 100% &&"
		   "tc qdisc add dev rail1 root netem loss 100%"))
		give_up("cables");
	/* From now on the survivor counts. */
	meet_survivor();
	raise(SIGKILL);
}

static void connect_to_survivor(void)
{
	struct snt_conn_opts opts = { .size = sizeof(opts),
				      .qp = &qp_opts,
				      .event = happened };
	struct snt_endpoint to = { .size = sizeof(to),
				   .host = ADDRESS,
				   .port = PORT,
				   .name = "guest 1",
				   .detect_ns = DETECT_NS };
	struct snt_op op = { 0 };
	struct snt_conn *conn;

	meet_survivor();
	open_all();
	must(snt_conn_connect(loop, &to, &opts, &conn), "connect");
	must(snt_conn_wait(conn, WAIT_NS), "the connection");
	if (!strcmp(role, "cut"))
		get_lost(conn);
	must(snt_op_post(snt_conn_qp(conn), &op,
			 &(struct snt_send_wr){ .opcode = SNT_OP_SEND }),
	     "send");
	must(snt_op_wait(&op, WAIT_NS), "the message");
	must(snt_conn_disconnect(conn, 0), "disconnect");
	must(snt_conn_wait_over(conn, WAIT_NS), "the end");
	must(snt_conn_destroy(conn), "destroy");
	close_all();
}

/*
 * The survivor
 */

struct heard {
	struct snt_conn *conn;
	uint64_t at; /* when it was requested, or cut off */
	uint64_t over_at;
	bool is_over;
};

static void watched(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct heard *heard = arg;

	if (event == SNT_CONN_PEER_DONE)
		must(snt_conn_disconnect(conn, 0), "disconnect");
	if (event != SNT_CONN_OVER)
		return;
	heard->is_over = true;
	heard->over_at = now();
}

static void hear(struct snt_listener *listener, struct heard *heard)
{
	struct snt_conn_opts opts = {
		.size = sizeof(opts), .qp = &qp_opts, .event = watched, .arg = heard
	};

	memset(heard, 0, sizeof(*heard));
	must(snt_listener_wait(listener, WAIT_NS, &heard->conn), "request");
	heard->at = now();
	must(snt_conn_accept(heard->conn, &opts), "accept");
}

static uint64_t identity_of(const struct snt_conn *conn)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	must(snt_conn_query(conn, &info), "query");
	return info.peer_identity;
}

static void await_message(struct heard *heard)
{
	struct snt_sge sge = { mem, word, sizeof(word) };
	struct snt_op op = { 0 };

	must(snt_conn_wait(heard->conn, WAIT_NS), "the connection");
	must(snt_op_recv(snt_conn_qp(heard->conn), &op, &sge), "receive");
	must(snt_op_wait(&op, WAIT_NS), "the message");
}

/* Serves the loop until the other one calls on the control network. */
static void await_call(struct heard *heard, int control)
{
	struct pollfd fds[] = { { .fd = control, .events = POLLIN },
				{ .fd = snt_loop_fd(loop), .events = POLLIN } };

	while (poll(fds, 2, -1) > 0 && !(fds[0].revents & POLLIN))
		must(snt_loop_dispatch(loop, 0), "dispatch");
	call_next(control);
	heard->at = now();
}

/* How long it took to notice; its status. */
static int await_end(struct heard *heard, uint64_t *took_out)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	while (!heard->is_over)
		must(snt_loop_wait(loop, WAIT_NS), "wait");
	*took_out = heard->over_at > heard->at ? heard->over_at - heard->at : 0;
	must(snt_conn_query(heard->conn, &info), "query");
	printf("# over after %.2f s: %s\n", (double)*took_out / 1e9, info.text);
	must(snt_conn_destroy(heard->conn), "destroy");
	return info.status;
}

static void judge(unsigned number, bool good, const char *what)
{
	printf("%sok %u - %s\n", good ? "" : "not ", number, what);
	fflush(stdout);
}

static void survive(void)
{
	struct snt_endpoint at = { .size = sizeof(at),
				   .host = ADDRESS,
				   .port = PORT,
				   .detect_ns = DETECT_NS,
				   .setup_ns = SETUP_NS };
	struct snt_listener *listener;
	int control = open_control();
	uint64_t identity, took;
	struct heard heard;
	int status;

	open_all();
	must(snt_listener_create(loop, &at, NULL, &listener), "listen");
	call_next(control);
	hear(listener, &heard);
	await_message(&heard);
	identity = identity_of(heard.conn);
	await_call(&heard, control);
	status = await_end(&heard, &took);
	judge(1, status && took <= DETECT_NS + SLACK_NS,
	      "cut off and killed, which is noticed in time");
	call_next(control);
	hear(listener, &heard);
	await_message(&heard);
	judge(2, identity_of(heard.conn) && identity_of(heard.conn) != identity,
	      "started anew on the same address, it is another one");
	status = await_end(&heard, &took);
	judge(3, !status, "and leaves as it should");
	call_next(control);
	hear(listener, &heard);
	status = await_end(&heard, &took);
	judge(4, status && took <= SETUP_NS + SLACK_NS,
	      "a host that goes in the middle of the handshake");
	must(snt_listener_destroy(listener), "the listener");
	close_all();
	judge(5, true, "nothing is left of any of them");
	printf("1..5\n");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		give_up("usage: conn_lost survive|cut|stay|die");
	role = argv[1];
	if (!strcmp(role, "survive"))
		survive();
	else
		connect_to_survivor();
	return 0;
}
