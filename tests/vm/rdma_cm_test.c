/* SPDX-License-Identifier: MIT */
/*
 * rdma_cm with QPs of our own context. librdmacm opens each device once more for
 * itself and rejects a PD of another ibv_context, so the QP is created through
 * the control table and driven by rdma_init_qp_attr() and rdma_establish(). This
 * is how connections are made in src/conn/; here the bare recipe is shown to
 * work on the kernel, and what the kernel answers in each step is pinned down.
 */
#include "lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "vm/guest_device.h"

#define WAIT_MS 10000

static struct sockaddr_in address; /* where a listener is, or was */

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct guest_qp own;
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
	assert_success(guest.control->modify_qp(end->own.qp, &attr, mask));
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
	assert_success(snt_device_query(guest.device, &info));
	assert_string_equal(ibv_get_device_name(client->id->verbs->device), info.name);
	assert_ptr_not_equal(client->id->verbs, snt_device_context(guest.device));
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
	guest_qp_create(&client->own);
	move_to(client, IBV_QPS_INIT);
	param.qp_num = client->own.qp->qp_num;
	assert_int_equal(rdma_connect(client->id, &param), 0);
}

static void listen_on(struct end *listener)
{
	listener->channel = open_channel();
	assert_int_equal(rdma_create_id(listener->channel, &listener->id, NULL,
					RDMA_PS_TCP),
			 0);
	address = guest.address;
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
	guest_qp_create(&server->own);
	move_to(server, IBV_QPS_INIT);
	move_to(server, IBV_QPS_RTR);
	move_to(server, IBV_QPS_RTS);
	param.qp_num = server->own.qp->qp_num;
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

static void send_across(struct end *from, struct end *to)
{
	guest_qp_send(&from->own, &to->own);
}

/* The QP goes before its id, on every path. */
static void destroy(struct end *end)
{
	guest_qp_destroy(&end->own);
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
	assert_int_equal(rdma_create_qp(client.id, snt_device_pd(guest.device), &attr),
			 -1);
	assert_int_equal(errno, EINVAL);
	destroy(&client);
	destroy(&listener);
}

static int set_up(void **state)
{
	(void)state;
	guest_open();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return guest_close();
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
