/* SPDX-License-Identifier: MIT */
/*
 * libibverbs and librdmacm as a program sees them with soft devices among the others.
 * What is called here is what the preload library exports: it is linked before the two.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/preload_kit.h"

#define GRH	40
#define TIMEOUT 10000 /* ms, for what should take none */
#define QKEY	0x11111111

/*
 * Connections. Both ends are here: the server on soft0, the client from wherever.
 */

static struct sockaddr_storage address_of(unsigned which, uint16_t port)
{
	struct sockaddr_storage address = { 0 };
	struct sockaddr_in *four = (struct sockaddr_in *)&address;
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(open_soft(which), 1, 0, &gid), 0);
	four->sin_family = AF_INET;
	four->sin_port = htons(port);
	memcpy(&four->sin_addr, gid.raw + 12, 4);
	return address;
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
					enum rdma_cm_event_type type)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	assert_int_equal(poll(&wait, 1, TIMEOUT), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	if (event->event != type)
		print_error("%s, status %d\n", rdma_event_str(event->event),
			    event->status);
	assert_int_equal(event->event, type);
	return event;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	assert_int_equal(rdma_ack_cm_event(next_event(channel, type)), 0);
}

static bool quiet(struct rdma_event_channel *channel)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };

	return poll(&wait, 1, 0) == 0;
}

static void add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 8,
			 .max_recv_wr = 8,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	assert_non_null(id->qp);
	assert_non_null(id->send_cq);
	assert_ptr_equal(id->pd->context, id->verbs);
}

struct world {
	struct rdma_event_channel *server, *client;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *accepted; /* the server's end */
	struct rdma_cm_id *id;	     /* the client's */
};

/* On all addresses if @all, else on that of soft0. */
static struct world open_world(bool all)
{
	struct sockaddr_storage address = address_of(0, 0);
	struct world w = { 0 };

	if (all)
		((struct sockaddr_in *)&address)->sin_addr.s_addr = 0;
	w.server = rdma_create_event_channel();
	w.client = rdma_create_event_channel();
	assert_non_null(w.server);
	assert_non_null(w.client);
	assert_int_equal(rdma_create_id(w.server, &w.listener, &w, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(w.listener, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_listen(w.listener, 4), 0);
	assert_int_not_equal(rdma_get_src_port(w.listener), 0);
	return w;
}

static uint16_t port_of(const struct world *w)
{
	return ntohs(rdma_get_src_port(w->listener));
}

static struct rdma_cm_id *reach(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_storage target = address_of(0, port);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&target, 1000),
			 0);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_non_null(id->verbs);
	assert_int_equal(id->port_num, 1);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(ntohs(rdma_get_dst_port(id)), port);
	assert_int_equal(id->route.num_paths, 1);
	return id;
}

static void ask(struct rdma_cm_id *id, const char *words)
{
	struct rdma_conn_param param = {
		.private_data = words,
		.private_data_len = (uint8_t)(strlen(words) + 1),
		.responder_resources = 4,
		.initiator_depth = 3,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	assert_int_equal(rdma_connect(id, &param), 0);
}

static void take_request(struct world *w, const char *words)
{
	struct rdma_cm_event *event =
		next_event(w->server, RDMA_CM_EVENT_CONNECT_REQUEST);

	assert_ptr_equal(event->listen_id, w->listener);
	assert_ptr_equal(event->id->context, w->listener->context);
	assert_string_equal(event->param.conn.private_data, words);
	assert_int_equal(event->param.conn.responder_resources, 3);
	assert_int_equal(event->param.conn.initiator_depth, 4);
	w->accepted = event->id;
	assert_non_null(w->accepted->verbs);
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void answer(struct world *w, const char *words)
{
	struct rdma_conn_param param = {
		.private_data = words,
		.private_data_len = (uint8_t)(strlen(words) + 1),
		.responder_resources = 3,
		.initiator_depth = 4,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_event *event;

	assert_int_equal(rdma_accept(w->accepted, &param), 0);
	event = next_event(w->client, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(event->id, w->id);
	assert_string_equal(event->param.conn.private_data, words);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	expect(w->server, RDMA_CM_EVENT_ESTABLISHED);
}

static struct world connect_world(bool all)
{
	struct world w = open_world(all);

	w.id = reach(w.client, port_of(&w));
	add_qp(w.id);
	ask(w.id, "hello");
	take_request(&w, "hello");
	add_qp(w.accepted);
	answer(&w, "welcome");
	return w;
}

static void end(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static void close_world(struct world *w)
{
	end(w->id);
	end(w->accepted);
	end(w->listener);
	assert_true(quiet(w->client));
	rdma_destroy_event_channel(w->client);
	rdma_destroy_event_channel(w->server);
}

static struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		;
	assert_int_equal(count, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return wc;
}

static void connection(void **state)
{
	char from[32] = "by the channel", to[32] = "";

	(void)state;
	for (int all = 0; all < 2; all++) {
		struct world w = connect_world(all);
		struct ibv_mr *sent = rdma_reg_msgs(w.id, from, sizeof(from));
		struct ibv_mr *received = rdma_reg_msgs(w.accepted, to, sizeof(to));
		struct ibv_wc wc;

		assert_int_equal(rdma_post_recv(w.accepted, NULL, to, sizeof(to),
						received),
				 0);
		assert_int_equal(rdma_post_send(w.id, NULL, from, sizeof(from), sent,
						0),
				 0);
		/* Waits at the completion channel that was made for the id. */
		assert_int_equal(rdma_get_recv_comp(w.accepted, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_string_equal(to, from);
		wait_wc(w.id->send_cq);
		rdma_dereg_mr(sent);
		rdma_dereg_mr(received);

		assert_int_equal(rdma_disconnect(w.id), 0);
		expect(w.client, RDMA_CM_EVENT_DISCONNECTED);
		expect(w.server, RDMA_CM_EVENT_DISCONNECTED);
		assert_int_equal(rdma_disconnect(w.accepted), 0);
		close_world(&w);
	}
}

/* Memory that the peer knows by another address. */
static void iova(void **state)
{
	const uint64_t name = UINT64_C(0x123456789000);
	struct world w = connect_world(false);
	char from[64] = "written", to[64] = "";
	struct ibv_mr *source =
		ibv_reg_mr(w.id->pd, from, sizeof(from), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *target =
		ibv_reg_mr_iova(w.accepted->pd, to, sizeof(to), name,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	(void)state;
	assert_non_null(source);
	assert_non_null(target);
	assert_ptr_equal(target->addr, to);
	assert_int_equal(rdma_post_write(w.id, NULL, from, sizeof(from), source, 0,
					 name, target->rkey),
			 0);
	wait_wc(w.id->send_cq);
	assert_string_equal(to, from);
	ibv_dereg_mr(source);
	ibv_dereg_mr(target);
	close_world(&w);
}

static void refused_by_program(void **state)
{
	struct world w = open_world(false);
	struct rdma_cm_event *event;

	(void)state;
	w.id = reach(w.client, port_of(&w));
	add_qp(w.id);
	ask(w.id, "hello");
	take_request(&w, "hello");
	assert_int_equal(rdma_reject(w.accepted, "no", 3), 0);
	event = next_event(w.client, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 28);
	assert_string_equal(event->param.conn.private_data, "no");
	rdma_ack_cm_event(event);
	close_world(&w);
}

/* The request has not been taken when its listener goes. */
static void refused_unseen(void **state)
{
	struct world w = open_world(false);

	(void)state;
	w.id = reach(w.client, port_of(&w));
	add_qp(w.id);
	ask(w.id, "hello");
	while (quiet(w.server))
		;
	end(w.listener);
	w.listener = NULL;
	assert_true(quiet(w.server));
	expect(w.client, RDMA_CM_EVENT_REJECTED);
	close_world(&w);
}

/* More requests than the backlog has room for are refused. */
static void backlog(void **state)
{
	struct world w = open_world(false);
	struct rdma_cm_id *id[5];
	struct rdma_cm_event *event;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(id); i++) {
		id[i] = reach(w.client, port_of(&w));
		add_qp(id[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(id); i++)
		ask(id[i], "hello");
	event = next_event(w.client, RDMA_CM_EVENT_REJECTED);
	rdma_ack_cm_event(event);
	assert_true(quiet(w.client));
	for (unsigned i = 0; i < ARRAY_SIZE(id); i++)
		end(id[i]);
	close_world(&w);
}

/* At a port without a listener; that is not believed at once. */
static void nobody_listens(void **state)
{
	struct world w = open_world(false);
	uint16_t port = port_of(&w);
	struct rdma_cm_event *event;

	(void)state;
	end(w.listener);
	w.listener = NULL;
	w.id = reach(w.client, port);
	add_qp(w.id);
	ask(w.id, "hello");
	event = next_event(w.client, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 8);
	rdma_ack_cm_event(event);
	close_world(&w);
}

static void listens_late(void **state)
{
	struct world w = open_world(false);
	struct sockaddr_storage address = address_of(0, port_of(&w));

	(void)state;
	end(w.listener);
	w.id = reach(w.client, ntohs(((struct sockaddr_in *)&address)->sin_port));
	add_qp(w.id);
	ask(w.id, "hello");
	/* By now it has been refused, most probably. */
	poll(NULL, 0, 50);
	assert_int_equal(rdma_create_id(w.server, &w.listener, &w, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(w.listener, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_listen(w.listener, 4), 0);
	take_request(&w, "hello");
	add_qp(w.accepted);
	answer(&w, "welcome");
	close_world(&w);
}

/* The id goes to another channel, and what has happened to it with it. */
static void migration(void **state)
{
	struct world w = connect_world(false);
	struct rdma_event_channel *other = rdma_create_event_channel();

	(void)state;
	assert_int_equal(rdma_disconnect(w.id), 0);
	while (quiet(w.server))
		;
	assert_int_equal(rdma_migrate_id(w.accepted, other), 0);
	assert_true(quiet(w.server));
	assert_ptr_equal(w.accepted->channel, other);
	expect(other, RDMA_CM_EVENT_DISCONNECTED);
	expect(w.client, RDMA_CM_EVENT_DISCONNECTED);
	close_world(&w);
	rdma_destroy_event_channel(other);
}

/* Of a listener: those who have come and nobody has seen go with it. */
static void migration_of_requests(void **state)
{
	struct world w = open_world(false);
	struct rdma_event_channel *other = rdma_create_event_channel();

	(void)state;
	w.id = reach(w.client, port_of(&w));
	add_qp(w.id);
	ask(w.id, "hello");
	while (quiet(w.server))
		;
	assert_int_equal(rdma_migrate_id(w.listener, other), 0);
	assert_true(quiet(w.server));
	rdma_destroy_event_channel(w.server);
	w.server = other;
	take_request(&w, "hello");
	assert_ptr_equal(w.accepted->channel, other);
	add_qp(w.accepted);
	answer(&w, "welcome");
	close_world(&w);
}

/* What was posted comes back when the peer refuses. */
static void refusal_flushes(void **state)
{
	struct world w = open_world(false);
	char text[16];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	(void)state;
	w.id = reach(w.client, port_of(&w));
	add_qp(w.id);
	mr = rdma_reg_msgs(w.id, text, sizeof(text));
	assert_int_equal(rdma_post_recv(w.id, NULL, text, sizeof(text), mr), 0);
	ask(w.id, "hello");
	take_request(&w, "hello");
	assert_int_equal(rdma_reject(w.accepted, NULL, 0), 0);
	expect(w.client, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(ibv_poll_cq(w.id->recv_cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	rdma_dereg_mr(mr);
	close_world(&w);
}

/* A port is chosen when an id is bound, not when it listens; one that is taken is not
 * given twice. */
static void port_is_chosen_by_binding(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id, *other;

	(void)state;
	for (int all = 0; all < 2; all++) {
		struct sockaddr_storage address = address_of(0, 0);
		struct sockaddr_in *four = (struct sockaddr_in *)&address;

		if (all)
			four->sin_addr.s_addr = 0;
		assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
		four->sin_port = rdma_get_src_port(id);
		assert_int_not_equal(four->sin_port, 0);
		assert_int_equal(rdma_listen(id, 1), 0);
		assert_int_equal(rdma_get_src_port(id), four->sin_port);
		assert_int_equal(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_bind_addr(other, (struct sockaddr *)&address),
				 -1);
		assert_int_equal(errno, EADDRINUSE);
		end(other);
		end(id);
	}
	rdma_destroy_event_channel(channel);
}

/*
 * A process ends while one of its threads takes events. What it is at is over by then,
 * and the thread is told so.
 */

struct ending {
	struct world w;
	struct rdma_cm_id *other;
	int heard; /* a pipe */
};

/* From when on all ids are without a peer. */
static void *hear_after_goodbye(void *arg)
{
	struct ending *ending = arg;
	struct rdma_cm_event *event;

	do {
		poll(NULL, 0, 1); /* saying goodbye needs the lock */
		rdma_notify(ending->other, IBV_EVENT_COMM_EST);
	} while (errno != EINVAL);
	if (!rdma_get_cm_event(ending->w.client, &event) &&
	    event->event == RDMA_CM_EVENT_CONNECT_ERROR)
		assert_int_equal(write(ending->heard, "", 1), 1);
	return NULL;
}

/* What was printed comes last of all in exit(), and waits for room in a pipe. */
static void fill_stdout(int fd)
{
	static char buffer[BUFSIZ];

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (write(fd, "x", 1) == 1)
		;
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	printf("last");
}

/* LeakSanitizer asks this before it looks. Threads that run while the process exits it cannot
 * always stop on a busy host, and then takes for lost what they hold. */
static int exits_beside_threads;

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return exits_beside_threads;
}

static void end_while_connecting(int out, int heard)
{
	static struct ending ending;
	struct rdma_conn_param param = { .responder_resources = 3 };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	pthread_t thread;

	ending.w = open_world(false);
	ending.heard = heard;
	ending.other = reach(channel, port_of(&ending.w));
	ending.w.id = reach(ending.w.client, port_of(&ending.w));
	add_qp(ending.w.id);
	ask(ending.w.id, "hello");
	take_request(&ending.w, "hello");
	add_qp(ending.w.accepted);
	assert_int_equal(rdma_accept(ending.w.accepted, &param), 0);
	while (quiet(ending.w.client))
		;
	assert_int_equal(pthread_create(&thread, NULL, hear_after_goodbye, &ending), 0);
	fill_stdout(out);
	exit(0);
}

static void exit_while_connecting(void **state)
{
	int out[2], heard[2], status;
	char bytes[4096];
	pid_t child;

	(void)state;
	assert_int_equal(pipe(out), 0);
	assert_int_equal(pipe(heard), 0);
	fflush(NULL);
	child = fork();
	if (!child) {
		close(out[0]);
		close(heard[0]);
		alarm(patience_s(20));
		exits_beside_threads = 1;
		end_while_connecting(out[1], heard[1]);
	}
	close(out[1]);
	close(heard[1]);
	assert_int_equal(read(heard[0], bytes, 1), 1);
	while (read(out[0], bytes, sizeof(bytes)) > 0)
		;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	close(out[0]);
	close(heard[0]);
}

/* Programs try less until it is enough, with what they have tried before. */
static void second_try(void **state)
{
	struct world w = open_world(false);
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1u << 20 },
		.qp_type = IBV_QPT_RC,
	};

	(void)state;
	w.id = reach(w.client, port_of(&w));
	assert_int_equal(rdma_create_qp(w.id, NULL, &attr), -1);
	attr.cap.max_send_sge = 1;
	assert_int_equal(rdma_create_qp(w.id, NULL, &attr), 0);
	assert_ptr_equal(w.id->qp->recv_cq, w.id->recv_cq);
	close_world(&w);
}

static void addresses(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in other = { .sin_family = AF_INET };
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *found;
	struct ibv_context **contexts;
	struct rdma_cm_id *id;
	int count = 0;

	(void)state;
	assert_int_equal(rdma_getaddrinfo(NULL, "7471", &hints, &found), 0);
	assert_non_null(found->ai_src_addr);
	assert_null(found->ai_dst_addr);
	rdma_freeaddrinfo(found);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", NULL, &found), 0);
	assert_int_equal(((struct sockaddr_in *)found->ai_dst_addr)->sin_port,
			 htons(7471));
	assert_int_equal(found->ai_qp_type, IBV_QPT_RC);
	rdma_freeaddrinfo(found);

	/* Nobody's address. */
	inet_pton(AF_INET, "192.0.2.77", &other.sin_addr);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&other), -1);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);

	contexts = rdma_get_devices(&count);
	assert_non_null(contexts);
	assert_true(count >= 2);
	assert_null(contexts[count]);
	assert_ptr_equal(contexts[count - 1]->device, open_soft(1)->device);
	rdma_free_devices(contexts);
}

/*
 * Ids that wait by themselves
 */

static const struct ibv_qp_init_attr ep_attr = {
	.cap = { .max_send_wr = 2,
		 .max_recv_wr = 2,
		 .max_send_sge = 1,
		 .max_recv_sge = 1,
		 .max_inline_data = 16 },
	.sq_sig_all = 1,
};

static void *serve(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	char text[16] = "";
	struct ibv_mr *mr;
	struct ibv_wc wc;

	assert_int_equal(rdma_get_request(listener, &id), 0);
	mr = rdma_reg_msgs(id, text, sizeof(text));
	assert_int_equal(rdma_post_recv(id, NULL, text, sizeof(text), mr), 0);
	assert_int_equal(rdma_accept(id, NULL), 0);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_string_equal(text, "ping");
	assert_int_equal(rdma_post_send(id, NULL, "pong", 5, NULL, IBV_SEND_INLINE), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static struct rdma_cm_id *make_ep(uint16_t port, bool passive)
{
	struct rdma_addrinfo hints = { .ai_flags = passive ? RAI_PASSIVE : 0,
				       .ai_port_space = RDMA_PS_TCP };
	struct sockaddr_storage address = address_of(0, port);
	struct ibv_qp_init_attr attr = ep_attr;
	struct rdma_addrinfo *info;
	struct rdma_cm_id *id;
	char node[INET_ADDRSTRLEN], service[8];

	inet_ntop(AF_INET, &((struct sockaddr_in *)&address)->sin_addr, node,
		  sizeof(node));
	snprintf(service, sizeof(service), "%u", port);
	assert_int_equal(rdma_getaddrinfo(node, service, &hints, &info), 0);
	assert_int_equal(rdma_create_ep(&id, info, NULL, &attr), 0);
	rdma_freeaddrinfo(info);
	return id;
}

static void end_points(void **state)
{
	struct rdma_cm_id *listener = make_ep(0, true), *id;
	char text[16] = "";
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t thread;

	(void)state;
	assert_int_equal(rdma_listen(listener, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, listener), 0);
	id = make_ep(ntohs(rdma_get_src_port(listener)), false);
	assert_non_null(id->qp);
	mr = rdma_reg_msgs(id, text, sizeof(text));
	assert_int_equal(rdma_post_recv(id, NULL, text, sizeof(text), mr), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(rdma_post_send(id, NULL, "ping", 5, NULL, IBV_SEND_INLINE), 0);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_string_equal(text, "pong");
	pthread_join(thread, NULL);
	assert_int_equal(rdma_disconnect(id), 0);
	/* Nothing comes any more for which it could wait. */
	assert_int_equal(rdma_disconnect(id), -1);
	assert_int_equal(errno, EINVAL);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

/*
 * Datagrams
 */

struct datagrams {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char bytes[128];
};

static void open_datagrams(struct datagrams *d, unsigned which)
{
	struct ibv_context *context = open_soft(which);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { .max_send_wr = 2,
						  .max_recv_wr = 2,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = QKEY };

	d->pd = ibv_alloc_pd(context);
	d->cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	d->mr = ibv_reg_mr(d->pd, d->bytes, sizeof(d->bytes), IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = d->cq;
	d->qp = ibv_create_qp(d->pd, &init);
	assert_int_equal(ibv_modify_qp(d->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_QKEY),
			 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(d->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(d->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void close_datagrams(struct datagrams *d)
{
	assert_int_equal(ibv_destroy_qp(d->qp), 0);
	assert_int_equal(ibv_destroy_cq(d->cq), 0);
	assert_int_equal(ibv_dereg_mr(d->mr), 0);
	assert_int_equal(ibv_dealloc_pd(d->pd), 0);
}

static void post_recv(struct datagrams *d)
{
	struct ibv_sge sge = { (uintptr_t)d->bytes, sizeof(d->bytes), d->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(ibv_post_recv(d->qp, &wr, &bad), 0);
}

static void send_to(struct datagrams *d, struct ibv_ah *ah, uint32_t qpn,
		    const char *text)
{
	struct ibv_sge sge = { (uintptr_t)d->bytes + GRH, 8, d->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };

	assert_non_null(ah);
	snprintf(d->bytes + GRH, 8, "%s", text);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	assert_int_equal(ibv_post_send(d->qp, &wr, &bad), 0);
	assert_int_equal(wait_wc(d->cq).opcode, IBV_WC_SEND);
}

/* There with an address, and back with what came along. */
static void datagrams(void **state)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct datagrams a, b;
	struct ibv_ah *there, *back;
	struct ibv_wc wc;

	(void)state;
	open_datagrams(&a, 0);
	open_datagrams(&b, 1);
	ibv_query_gid(b.qp->context, 1, 0, &attr.grh.dgid);
	there = ibv_create_ah(a.pd, &attr);
	post_recv(&b);
	send_to(&a, there, b.qp->qp_num, "there");
	wc = wait_wc(b.cq);
	assert_int_equal(wc.byte_len, GRH + 8);
	assert_string_equal(b.bytes + GRH, "there");

	back = ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)b.bytes, 1);
	post_recv(&a);
	send_to(&b, back, wc.src_qp, "back");
	wc = wait_wc(a.cq);
	assert_string_equal(a.bytes + GRH, "back");
	assert_int_equal(wc.src_qp, b.qp->qp_num);
	assert_int_equal(ibv_destroy_ah(there), 0);
	assert_int_equal(ibv_destroy_ah(back), 0);
	close_datagrams(&a);
	close_datagrams(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connection),
		cmocka_unit_test(iova),
		cmocka_unit_test(refused_by_program),
		cmocka_unit_test(refused_unseen),
		cmocka_unit_test(backlog),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(listens_late),
		cmocka_unit_test(migration),
		cmocka_unit_test(addresses),
		cmocka_unit_test(migration_of_requests),
		cmocka_unit_test(refusal_flushes),
		cmocka_unit_test(port_is_chosen_by_binding),
		cmocka_unit_test(second_try),
		cmocka_unit_test(end_points),
		cmocka_unit_test(datagrams),
		cmocka_unit_test(exit_while_connecting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
