/* SPDX-License-Identifier: MIT */
/*
 * rdma_cm with QPs of our own context. librdmacm opens each device once more for
 * itself and rejects a PD of another ibv_context, so the QP is created through
 * the control table and driven by rdma_init_qp_attr() and rdma_establish(). This
 * is how connections are made in src/conn/; here the bare recipe is shown to
 * work on the kernel, and what the kernel answers in each step is pinned down.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sennit/sennit.h>

#define WAIT_MS 10000

static struct snt_ctx *ctx;
static struct snt_device *device;
static const struct snt_control *control;
static struct snt_mem *mem;
static char buffer[256];
static struct sockaddr_in address;

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
					enum rdma_cm_event_type expected)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	/* The fd is non-blocking: only poll may wait. */
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	if (event->event != expected)
		print_error("got %s, status %d\n", rdma_event_str(event->event),
			    event->status);
	assert_int_equal(event->event, expected);
	return event;
}

static void expect(struct end *end, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event = next_event(end->channel, expected);

	assert_ptr_equal(event->id, end->id);
	rdma_ack_cm_event(event);
}

static struct rdma_event_channel *open_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	assert_non_null(channel);
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	return channel;
}

static void create_qp(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	assert_success(control->create_cq(snt_device_context(device), 8, NULL, NULL, 0,
					  &end->cq));
	attr.send_cq = end->cq;
	attr.recv_cq = end->cq;
	assert_success(control->create_qp(snt_device_pd(device), &attr, &end->qp));
}

/* As librdmacm would do for a QP of its own. */
static void move_to(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	assert_int_equal(rdma_init_qp_attr(end->id, &attr, &mask), 0);
	if (state == IBV_QPS_RTR) {
		/* The kernel leaves the RNR timer 0, which means 655 ms. */
		assert_true(mask & IBV_QP_MIN_RNR_TIMER);
		assert_int_equal(attr.min_rnr_timer, 0);
		attr.min_rnr_timer = 12;
	}
	assert_success(control->modify_qp(end->qp, &attr, mask));
}

static void resolve(struct end *client)
{
	struct snt_device_info info = { .size = sizeof(info) };

	client->channel = open_channel();
	assert_int_equal(rdma_create_id(client->channel, &client->id, NULL,
					RDMA_PS_TCP),
			 0);
	assert_int_equal(rdma_resolve_addr(client->id, NULL,
					   (struct sockaddr *)&address, WAIT_MS),
			 0);
	expect(client, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(client->id, WAIT_MS), 0);
	expect(client, RDMA_CM_EVENT_ROUTE_RESOLVED);

	/* The device is ours by name, but its ibv_context is librdmacm's own. */
	assert_success(snt_device_query(device, &info));
	assert_string_equal(ibv_get_device_name(client->id->verbs->device), info.name);
	assert_ptr_not_equal(client->id->verbs, snt_device_context(device));
}

static void start_connect(struct end *client)
{
	struct rdma_conn_param param = {
		.private_data = "from the client",
		.private_data_len = 16,
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	resolve(client);
	create_qp(client);
	move_to(client, IBV_QPS_INIT);
	param.qp_num = client->qp->qp_num;
	assert_int_equal(rdma_connect(client->id, &param), 0);
}

static void listen_on(struct end *listener)
{
	listener->channel = open_channel();
	assert_int_equal(rdma_create_id(listener->channel, &listener->id, NULL,
					RDMA_PS_TCP),
			 0);
	address.sin_port = 0;
	assert_int_equal(rdma_bind_addr(listener->id, (struct sockaddr *)&address), 0);
	assert_int_equal(rdma_listen(listener->id, 4), 0);
	address.sin_port = rdma_get_src_port(listener->id);
	assert_true(address.sin_port);
}

static void accept_from(struct end *listener, struct end *server)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param param = {
		.private_data = "from the server",
		.private_data_len = 16,
		.responder_resources = 1,
		.initiator_depth = 1,
		.rnr_retry_count = 7,
	};

	event = next_event(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, listener->id);
	assert_string_equal(event->param.conn.private_data, "from the client");
	server->id = event->id;
	rdma_ack_cm_event(event);
	server->channel = open_channel();
	assert_int_equal(rdma_migrate_id(server->id, server->channel), 0);
	create_qp(server);
	move_to(server, IBV_QPS_INIT);
	move_to(server, IBV_QPS_RTR);
	move_to(server, IBV_QPS_RTS);
	param.qp_num = server->qp->qp_num;
	assert_int_equal(rdma_accept(server->id, &param), 0);
}

static void establish(struct end *client)
{
	struct rdma_cm_event *event;

	event = next_event(client->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_string_equal(event->param.conn.private_data, "from the server");
	rdma_ack_cm_event(event);
	move_to(client, IBV_QPS_RTR);
	move_to(client, IBV_QPS_RTS);
	assert_int_equal(rdma_establish(client->id), 0);
}

static struct ibv_wc next_completion(struct end *end)
{
	struct ibv_wc wc = { 0 };

	for (int i = 0; i < WAIT_MS; i++) {
		int n = ibv_poll_cq(end->cq, 1, &wc);

		assert_true(n >= 0);
		if (n)
			return wc;
		poll(NULL, 0, 1);
	}
	fail_msg("no completion");
	return wc;
}

static void send_across(struct end *from, struct end *to)
{
	struct ibv_recv_wr recv = { .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED,
				    .num_sge = 1 },
			   *bad_send;
	struct ibv_sge send_sge, recv_sge;
	struct ibv_wc wc;

	snprintf(buffer, 64, "over a QP that rdma_cm connected");
	memset(buffer + 128, 0, 128);
	assert_success(snt_mem_sge(mem, 0, 0, 64, &send_sge));
	assert_success(snt_mem_sge(mem, 0, 128, 64, &recv_sge));
	recv.sg_list = &recv_sge;
	send.sg_list = &send_sge;
	assert_int_equal(ibv_post_recv(to->qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(from->qp, &send, &bad_send), 0);
	assert_int_equal(next_completion(from).status, IBV_WC_SUCCESS);
	wc = next_completion(to);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 64);
	assert_string_equal(buffer, buffer + 128);
}

/* The QP goes before its id, on every path. */
static void destroy(struct end *end)
{
	if (end->qp)
		assert_success(control->destroy_qp(end->qp));
	if (end->cq)
		assert_success(control->destroy_cq(end->cq));
	if (end->id)
		assert_int_equal(rdma_destroy_id(end->id), 0);
	if (end->channel)
		rdma_destroy_event_channel(end->channel);
}

static void connect_send_disconnect(void **state)
{
	struct end listener = { 0 }, client = { 0 }, server = { 0 };

	(void)state;
	listen_on(&listener);
	start_connect(&client);
	accept_from(&listener, &server);
	establish(&client);
	expect(&server, RDMA_CM_EVENT_ESTABLISHED);
	send_across(&client, &server);
	send_across(&server, &client);
	assert_int_equal(rdma_disconnect(client.id), 0);
	expect(&server, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(rdma_disconnect(server.id), 0);
	expect(&client, RDMA_CM_EVENT_DISCONNECTED);
	destroy(&client);
	destroy(&server);
	destroy(&listener);
}

static void nobody_listens(void **state)
{
	struct end listener = { 0 }, client = { 0 };
	struct rdma_cm_event *event;

	(void)state;
	listen_on(&listener); /* for a port that is free afterwards */
	destroy(&listener);
	start_connect(&client);
	event = next_event(client.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 8); /* invalid service id */
	rdma_ack_cm_event(event);
	destroy(&client);
}

static void server_rejects_with_a_reason(void **state)
{
	struct end listener = { 0 }, client = { 0 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *refused;

	(void)state;
	listen_on(&listener);
	start_connect(&client);
	event = next_event(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	refused = event->id;
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_reject(refused, "too many", 9), 0);
	assert_int_equal(rdma_destroy_id(refused), 0);
	event = next_event(client.channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 28); /* consumer defined */
	assert_string_equal(event->param.conn.private_data, "too many");
	rdma_ack_cm_event(event);
	destroy(&client);
	destroy(&listener);
}

/* Chapter and verse for why the QP is not librdmacm's: it refuses our PD. */
static void librdmacm_refuses_a_foreign_pd(void **state)
{
	struct end listener = { 0 }, client = { 0 };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
		.qp_type = IBV_QPT_RC,
	};

	(void)state;
	listen_on(&listener);
	resolve(&client);
	errno = 0;
	assert_int_equal(rdma_create_qp(client.id, snt_device_pd(device), &attr), -1);
	assert_int_equal(errno, EINVAL);
	destroy(&client);
	destroy(&listener);
}

static int set_up(void **state)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_device_info info = { .size = sizeof(info) };

	(void)state;
	assert_success(snt_ctx_open(NULL, &ctx));
	device = snt_ctx_device(ctx, 0);
	control = snt_device_control(device);
	assert_success(snt_mem_register(ctx, buffer, sizeof(buffer),
					SNT_ACCESS_LOCAL_WRITE, &mem));
	assert_success(snt_device_query(device, &info));
	for (unsigned i = 0; !snt_device_gid(device, i, &gid); i++)
		if ((int32_t)gid.index == info.gid_index)
			break;
	address.sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, gid.text, &address.sin_addr), 1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_success(snt_mem_release(mem));
	return snt_ctx_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_send_disconnect),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(server_rejects_with_a_reason),
		cmocka_unit_test(librdmacm_refuses_a_foreign_pd),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
