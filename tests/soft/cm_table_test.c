/* SPDX-License-Identifier: MIT */
/* Connection managers of soft devices, as programs use them: with QPs. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <arpa/inet.h>
#include <poll.h>

#include "dev/cm.h"
#include "lib/fault.h"

static const struct snt__cm_table *const table = &snt__cm_soft;

static struct snt__cm *open_for(struct kit *kit, unsigned first, unsigned count)
{
	struct snt__cm_device devices[ENDS];
	struct snt__cm_opts opts = { .devices = devices, .device_count = count };
	struct snt__cm *cm = NULL;

	for (unsigned i = 0; i < count; i++)
		devices[i] = (struct snt__cm_device){ kit->end[first + i].context, 1 };
	assert_success(table->open(&opts, &cm));
	return cm;
}

static struct kit *open_kit(bool ipv6)
{
	struct kit_opts opts = { .unconnected = true, .ipv6 = ipv6 };

	return kit_open(&opts);
}

static bool readable(struct snt__cm *cm)
{
	struct pollfd wait = { .fd = table->fd(cm), .events = POLLIN };

	return poll(&wait, 1, 0) == 1;
}

static struct snt__cm_event expect(struct snt__cm *cm, enum snt__cm_event_type type)
{
	struct snt__cm_event event;

	assert_true(readable(cm));
	assert_int_equal(table->next_event(cm, &event), 0);
	assert_int_equal(event.type, type);
	assert_ptr_equal(event.id->cm, cm);
	return event;
}

static void expect_none(struct snt__cm *cm)
{
	struct snt__cm_event event;

	assert_int_equal(table->next_event(cm, &event), -EAGAIN);
	assert_false(readable(cm));
}

static struct sockaddr_storage address(const char *text, uint16_t port)
{
	struct sockaddr_storage storage = { .ss_family = AF_INET };
	struct sockaddr_in *four = (struct sockaddr_in *)&storage;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&storage;

	four->sin_port = htons(port); /* at the same place in both */
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
		return storage;
	storage.ss_family = AF_INET6;
	assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
	return storage;
}

static uint16_t port_of(const struct sockaddr_storage *storage)
{
	return ntohs(((const struct sockaddr_in *)storage)->sin_port);
}

static int listen_on(struct snt__cm *cm, const char *text, uint16_t port,
		     struct snt__cm_id **id)
{
	struct sockaddr_storage storage = address(text, port);

	return table->listen(cm, (struct sockaddr *)&storage, 0, id);
}

static int resolve(struct snt__cm *cm, const char *from, const char *to, uint16_t port,
		   struct snt__cm_id **id)
{
	struct sockaddr_storage target = address(to, port), source;

	if (from)
		source = address(from, 0);
	return table->resolve(cm, from ? (struct sockaddr *)&source : NULL,
			      (struct sockaddr *)&target, 1000, id);
}

/*
 * QPs
 */

static void move_qp(struct kit *kit, unsigned end, struct snt__cm_id *id,
		    enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	assert_success(table->qp_attr(id, &attr, &mask));
	assert_int_equal(kit->control->modify_qp(kit->end[end].qp, &attr, mask), 0);
}

static struct snt__cm_param param_of(const struct kit *kit, unsigned end,
				     const char *word)
{
	return (struct snt__cm_param){
		.data = word,
		.data_length = (uint8_t)(strlen(word) + 1),
		.qpn = kit->end[end].qp->qp_num,
		.responder_resources = 2,
		.initiator_depth = 2,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.mtu = IBV_MTU_1024,
		.ack_timeout = 14,
	};
}

static void send_across(struct kit *kit, unsigned from, uint64_t number)
{
	const struct kit_send send = {
		.id = number, .opcode = IBV_WR_SEND, .at = 0, .length = 5000
	};

	kit_fill(kit, from, 0, 5000, (unsigned)number);
	kit_recv(kit, !from, number, 8192, 5000);
	kit_send(kit, from, &send);
	kit_run_for(kit, 1000000);
	kit_expect(kit, from, number, IBV_WC_SUCCESS);
	kit_expect(kit, !from, number, IBV_WC_SUCCESS);
	kit_check(kit, !from, 8192, 5000, (unsigned)number);
}

struct world {
	struct kit *kit;
	struct snt__cm *cm[ENDS];
	struct snt__cm_id *listener, *id[ENDS];
};

static struct world open_world(bool ipv6)
{
	struct world world = { .kit = open_kit(ipv6) };

	for (unsigned end = 0; end < ENDS; end++)
		world.cm[end] = open_for(world.kit, end, 1);
	assert_success(
		listen_on(world.cm[B], ipv6 ? "::" : "0.0.0.0", 7000, &world.listener));
	return world;
}

/* Up to where A has its response, and its QP is ready; B's is in some state. */
static void connect_up_to(struct world *world, bool ipv6, enum ibv_qp_state last)
{
	struct snt__cm_param param = param_of(world->kit, A, "from A");
	struct snt__cm_event event;

	assert_success(resolve(world->cm[A], NULL, ipv6 ? "fd01::2" : "10.0.0.2", 7000,
			       &world->id[A]));
	assert_ptr_equal(expect(world->cm[A], SNT__CM_EVENT_RESOLVED).id, world->id[A]);
	expect_none(world->cm[A]);
	move_qp(world->kit, A, world->id[A], IBV_QPS_INIT);
	assert_success(table->connect(world->id[A], &param));
	kit_run_for(world->kit, 1000);

	event = expect(world->cm[B], SNT__CM_EVENT_REQUEST);
	assert_ptr_equal(event.listener, world->listener);
	assert_string_equal((char *)event.data, "from A");
	world->id[B] = event.id;
	for (enum ibv_qp_state state = IBV_QPS_INIT; state <= last; state++)
		move_qp(world->kit, B, world->id[B], state);
	param = param_of(world->kit, B, "from B");
	assert_success(table->accept(world->id[B], &param));
	kit_run_for(world->kit, 1000);

	event = expect(world->cm[A], SNT__CM_EVENT_RESPONSE);
	assert_string_equal((char *)event.data, "from B");
	move_qp(world->kit, A, world->id[A], IBV_QPS_RTR);
	move_qp(world->kit, A, world->id[A], IBV_QPS_RTS);
}

static void connect_world(struct world *world, bool ipv6)
{
	connect_up_to(world, ipv6, IBV_QPS_RTS);
}

static void close_world(struct world *world)
{
	for (unsigned end = 0; end < ENDS; end++) {
		assert_int_equal(world->kit->control->destroy_qp(
					 world->kit->end[end].qp),
				 0);
		world->kit->end[end].qp = NULL;
		table->destroy(world->id[end]);
	}
	table->destroy(world->listener);
	for (unsigned end = 0; end < ENDS; end++)
		assert_success(table->close(world->cm[end]));
	kit_close(world->kit);
}

static void check_addresses(struct world *world)
{
	struct sockaddr_storage local[ENDS], peer[ENDS];

	for (unsigned end = 0; end < ENDS; end++)
		table->addresses(world->id[end], &local[end], &peer[end]);
	assert_memory_equal(&local[A], &peer[B], sizeof(local[A]));
	assert_memory_equal(&local[B], &peer[A], sizeof(local[B]));
	assert_int_equal(port_of(&local[B]), 7000);
	assert_true(port_of(&local[A]) >= 49152);
}

static void connect_send_disconnect(bool ipv6)
{
	struct world world = open_world(ipv6);

	connect_world(&world, ipv6);
	assert_success(table->establish(world.id[A]));
	kit_run_for(world.kit, 1000);
	assert_ptr_equal(expect(world.cm[B], SNT__CM_EVENT_ESTABLISHED).id,
			 world.id[B]);
	check_addresses(&world);
	for (unsigned i = 0; i < 4; i++)
		send_across(world.kit, i & 1, i + 1);
	assert_success(table->disconnect(world.id[A]));
	kit_run_for(world.kit, 1000);
	expect(world.cm[A], SNT__CM_EVENT_DISCONNECTED);
	expect(world.cm[B], SNT__CM_EVENT_DISCONNECTED);
	assert_success(table->disconnect(world.id[B]));
	expect_none(world.cm[A]);
	expect_none(world.cm[B]);
	close_world(&world);
}

static void over_ipv4(void **state)
{
	(void)state;
	connect_send_disconnect(false);
}

static void over_ipv6(void **state)
{
	(void)state;
	connect_send_disconnect(true);
}

static enum kit_fate lose_mads(struct kit *kit, const struct kit_frame *frame)
{
	(void)kit;
	return frame->bytes[0] == SNT__WIRE_UD_SEND_ONLY ? KIT_DROP : KIT_PASS;
}

/* The first data says that the peer is there. Devices tell as long as the QP cannot
 * send. */
static void data_before_rtu(void **state)
{
	struct world world = open_world(false);

	(void)state;
	connect_up_to(&world, false, IBV_QPS_RTR);
	world.kit->fate = lose_mads;
	assert_success(table->establish(world.id[A]));
	send_across(world.kit, A, 1);
	expect_none(world.cm[B]);
	kit_expect_event(world.kit, B, IBV_EVENT_COMM_EST);
	assert_success(table->notify(world.id[B]));
	expect(world.cm[B], SNT__CM_EVENT_ESTABLISHED);
	assert_success(table->notify(world.id[B]));
	expect_none(world.cm[B]);
	close_world(&world);
}

static void rejected(void **state)
{
	struct world world = open_world(false);
	struct snt__cm_param param = param_of(world.kit, A, "please");
	struct snt__cm_event event;

	(void)state;
	assert_success(
		resolve(world.cm[A], "10.0.0.1", "10.0.0.2", 7000, &world.id[A]));
	assert_error(table->establish(world.id[A]), ENOTCONN, "establish");
	assert_error(table->disconnect(world.id[A]), ENOTCONN, "disconnect");
	assert_error(table->accept(world.id[A], &param), ENOTCONN, "accept");
	assert_error(table->reject(world.id[A], NULL, 0), ENOTCONN, "reject");
	param.data_length = 57;
	assert_error(table->connect(world.id[A], &param), EINVAL, "connect");
	param.data_length = 7;
	assert_success(table->connect(world.id[A], &param));
	kit_run_for(world.kit, 1000);
	world.id[B] = expect(world.cm[B], SNT__CM_EVENT_REQUEST).id;
	assert_success(table->reject(world.id[B], "no", 3));
	kit_run_for(world.kit, 1000);
	expect(world.cm[A], SNT__CM_EVENT_RESOLVED);
	event = expect(world.cm[A], SNT__CM_EVENT_REJECTED);
	assert_int_equal(event.reason, SNT__CM_REASON_CONSUMER);
	assert_string_equal((char *)event.data, "no");
	close_world(&world);
}

/* It is destroyed while events wait, which are gone then. */
static void destroyed_with_events(void **state)
{
	struct world world = open_world(false);

	(void)state;
	assert_success(resolve(world.cm[A], NULL, "10.0.0.2", 7000, &world.id[A]));
	assert_true(readable(world.cm[A]));
	table->destroy(world.id[A]);
	world.id[A] = NULL;
	expect_none(world.cm[A]);
	close_world(&world);
}

/*
 * Addresses
 */

static void where_to_listen(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm *cm = open_for(kit, A, 2);
	struct snt__cm_id *id[3], *none = NULL;
	struct sockaddr_storage local, peer;
	struct sockaddr unix_address = { .sa_family = AF_UNIX };

	(void)state;
	assert_error(table->listen(cm, &unix_address, 0, &none), EAFNOSUPPORT, "IPv4");
	assert_error(listen_on(cm, "10.0.0.3", 7000, &none), EADDRNOTAVAIL,
		     "no device has the listener's address 10.0.0.3");
	assert_error(listen_on(cm, "fd01::3", 7000, &none), EADDRNOTAVAIL,
		     "no device has the listener's address fd01::3");
	assert_success(listen_on(cm, "10.0.0.2", 7000, &id[0]));
	assert_error(listen_on(cm, "10.0.0.2", 7000, &none), EADDRINUSE, "7000");
	assert_error(listen_on(cm, "::", 7000, &none), EADDRINUSE, "7000");
	/* Nothing is left of that, on the device where there was room. */
	assert_success(listen_on(cm, "10.0.0.1", 7000, &id[1]));
	assert_success(listen_on(cm, "0.0.0.0", 0, &id[2]));
	assert_null(none);
	table->addresses(id[2], &local, &peer);
	assert_int_equal(local.ss_family, AF_INET);
	assert_int_equal(peer.ss_family, AF_UNSPEC);
	assert_true(port_of(&local) >= 49152);
	assert_error(listen_on(cm, "10.0.0.1", port_of(&local), &none), EADDRINUSE,
		     "port");
	assert_error(table->close(cm), EBUSY, "has connections");
	for (unsigned i = 0; i < 3; i++)
		table->destroy(id[i]);
	assert_success(listen_on(cm, "::", 7000, &id[0]));
	table->destroy(id[0]);
	table->destroy(NULL);
	assert_success(table->close(cm));
	kit_close(kit);
}

static void too_many_listeners(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm *cm = open_for(kit, A, 1);
	struct snt__cm_id *id[16], *none;

	(void)state;
	for (unsigned i = 0; i < 16; i++)
		assert_success(listen_on(cm, "0.0.0.0", 0, &id[i]));
	assert_error(listen_on(cm, "0.0.0.0", 0, &none), ENOBUFS, "too many");
	for (unsigned i = 0; i < 16; i++)
		table->destroy(id[i]);
	assert_success(table->close(cm));
	kit_close(kit);
}

static void where_to_connect(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm *cm = open_for(kit, A, 2);
	struct snt__cm_id *id = NULL;
	struct snt__cm_event event;

	(void)state;
	assert_error(resolve(cm, NULL, "fd01::1", 1, &id), ENETUNREACH, "family");
	assert_error(resolve(cm, "10.0.0.3", "10.0.0.2", 1, &id), EADDRNOTAVAIL,
		     "no device has the source address 10.0.0.3");
	assert_error(resolve(cm, "10.0.0.1", "fd01::1", 1, &id), ENETUNREACH,
		     "cannot reach");
	assert_error(resolve(cm, NULL, "0.0.0.0", 1, &id), ENETUNREACH, "cannot reach");
	assert_null(id);
	/* The device whose address is most like the target's. */
	assert_success(resolve(cm, NULL, "10.0.0.3", 1, &id));
	assert_int_equal(id->device, 1);
	event = expect(cm, SNT__CM_EVENT_RESOLVED);
	assert_int_equal(event.id->device, 1);
	table->destroy(id);
	assert_success(resolve(cm, "10.0.0.1", "10.0.0.3", 1, &id));
	assert_int_equal(id->device, 0);
	assert_error(table->close(cm), EBUSY, "has connections");
	table->destroy(id);
	assert_success(table->close(cm));
	kit_close(kit);
}

/* One manager for both devices: a listener on all of them, and a connection with
 * itself. */
static void two_devices(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm *cm = open_for(kit, A, 2);
	struct snt__cm_id *listener = NULL, *id[2];
	struct snt__cm_param param = param_of(kit, A, "hello");
	bool seen[2] = { false };

	(void)state;
	assert_success(listen_on(cm, "0.0.0.0", 7000, &listener));
	assert_success(resolve(cm, "10.0.0.1", "10.0.0.2", 7000, &id[0]));
	assert_success(resolve(cm, "10.0.0.2", "10.0.0.1", 7000, &id[1]));
	expect(cm, SNT__CM_EVENT_RESOLVED);
	expect(cm, SNT__CM_EVENT_RESOLVED);
	for (unsigned i = 0; i < 2; i++)
		assert_success(table->connect(id[i], &param));
	kit_run_for(kit, 1000);
	for (unsigned i = 0; i < 2; i++) {
		struct snt__cm_event event = expect(cm, SNT__CM_EVENT_REQUEST);

		assert_ptr_equal(event.listener, listener);
		assert_false(seen[event.id->device]);
		seen[event.id->device] = true;
		table->destroy(event.id);
	}
	kit_run_for(kit, 1000);
	expect(cm, SNT__CM_EVENT_REJECTED);
	expect(cm, SNT__CM_EVENT_REJECTED);
	expect_none(cm);
	table->destroy(listener);
	for (unsigned i = 0; i < 2; i++)
		table->destroy(id[i]);
	assert_success(table->close(cm));
	kit_close(kit);
}

/* A device whose address is taken away in between. */
static void address_lost(void **state)
{
	struct world world = open_world(false);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;

	(void)state;
	connect_world(&world, false);
	snt__soft_device_set_gid(world.kit->end[B].device, 0, NULL);
	assert_error(table->qp_attr(world.id[B], &attr, &mask), EADDRNOTAVAIL, "lost");
	attr.qp_state = IBV_QPS_INIT;
	assert_success(table->qp_attr(world.id[B], &attr, &mask));
	close_world(&world);
}

/*
 * Managers
 */

/* A device is named once, and outlives all managers that it has. */
static void devices_of_managers(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm *cm = open_for(kit, B, 1), *more = NULL;
	struct snt__cm_device devices[2] = { { kit->end[A].context, 1 },
					     { kit->end[A].context, 1 } };
	struct snt__cm_opts opts = { .devices = devices };

	(void)state;
	assert_error(table->open(&opts, &more), EINVAL, "1 to");
	opts.device_count = 2;
	assert_error(table->open(&opts, &more), EINVAL, "manager");
	assert_null(more);
	devices[1].context = kit->end[B].context;
	assert_success(table->open(&opts, &more));
	assert_int_equal(kit->control->destroy_qp(kit->end[B].qp), 0);
	kit->end[B].qp = NULL;
	assert_success(table->close(cm));
	assert_int_equal(snt__soft_device_destroy(kit->end[B].device), -EBUSY);
	assert_success(table->close(more));
	assert_success(table->close(NULL));
	kit_close(kit);
}

/* QP 1 of the device is used by something else. */
static void device_has_an_agent(void **state)
{
	static const struct snt__soft_agent other;
	struct kit *kit = open_kit(false);
	struct snt__cm_device device = { kit->end[A].context, 1 };
	struct snt__cm_opts opts = { .devices = &device, .device_count = 1 };
	struct snt__cm *cm = NULL;

	(void)state;
	snt__soft_device_set_agent(kit->end[A].device, &other, NULL);
	assert_error(table->open(&opts, &cm), EBUSY, "manager");
	snt__soft_device_set_agent(kit->end[A].device, NULL, NULL);
	assert_null(cm);
	kit_close(kit);
}

/* Two managers of one device: ports are taken for both, a request comes to the manager
 * of its listener, and each can be closed while the other goes on. */
static void managers_share_a_device(void **state)
{
	struct world world = open_world(false);
	struct snt__cm *both = open_for(world.kit, A, 2);
	struct snt__cm_id *listener = NULL, *id = NULL;
	struct snt__cm_param param = param_of(world.kit, A, "to 7001");

	(void)state;
	assert_error(listen_on(both, "0.0.0.0", 7000, &listener), EADDRINUSE, "7000");
	assert_error(listen_on(both, "10.0.0.2", 7000, &listener), EADDRINUSE, "7000");
	assert_success(listen_on(both, "10.0.0.1", 7000, &listener));
	table->destroy(listener);
	assert_success(listen_on(both, "0.0.0.0", 7001, &listener));

	connect_world(&world, false);
	assert_success(table->establish(world.id[A]));
	assert_success(resolve(both, "10.0.0.1", "10.0.0.2", 7001, &id));
	expect(both, SNT__CM_EVENT_RESOLVED);
	param.qpn++;
	assert_success(table->connect(id, &param));
	kit_run_for(world.kit, 1000);
	expect(world.cm[B], SNT__CM_EVENT_ESTABLISHED);
	expect_none(world.cm[A]);
	expect_none(world.cm[B]);
	assert_error(table->close(both), EBUSY, "has connections");
	table->destroy(expect(both, SNT__CM_EVENT_REQUEST).id);
	table->destroy(listener);
	table->destroy(id);
	/* Of the two that are over, peers have not heard yet. */
	assert_success(table->close(both));
	kit_run_for(world.kit, 1000);
	send_across(world.kit, A, 1);
	assert_success(table->disconnect(world.id[B]));
	kit_run_for(world.kit, 1000);
	expect(world.cm[A], SNT__CM_EVENT_DISCONNECTED);
	expect(world.cm[B], SNT__CM_EVENT_DISCONNECTED);
	close_world(&world);
}

/* The limits are the device's: the first manager sets them, all share them. */
static void managers_share_limits(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm_device device = { kit->end[A].context, 1 };
	struct snt__cm_opts opts = { .devices = &device,
				     .device_count = 1,
				     .connection_max = 2,
				     .listener_max = 2 };
	struct snt__cm *cm[2] = { NULL };
	struct snt__cm_id *id[2], *listener[2], *none = NULL;

	(void)state;
	assert_success(table->open(&opts, &cm[0]));
	opts.connection_max = opts.listener_max = 100;
	assert_success(table->open(&opts, &cm[1]));
	for (unsigned i = 0; i < 2; i++) {
		assert_success(resolve(cm[i], NULL, "10.0.0.2", 1, &id[i]));
		assert_success(listen_on(cm[i], "0.0.0.0", 0, &listener[i]));
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_error(resolve(cm[i], NULL, "10.0.0.2", 1, &none), ENOBUFS,
			     "too many");
		assert_error(listen_on(cm[i], "0.0.0.0", 0, &none), ENOBUFS,
			     "too many");
	}
	table->destroy(id[0]);
	assert_success(resolve(cm[1], NULL, "10.0.0.2", 1, &id[0]));
	for (unsigned i = 0; i < 2; i++) {
		table->destroy(id[i]);
		table->destroy(listener[i]);
	}
	assert_success(table->close(cm[0]));
	assert_success(table->close(cm[1]));
	kit_close(kit);
}

/*
 * Requests that move to another manager
 */

/* A request of A, taken by B; the other manager has both devices. */
static struct snt__cm *take_request(struct world *world)
{
	struct snt__cm_param param;

	*world = open_world(false);
	param = param_of(world->kit, A, "from A");
	assert_success(resolve(world->cm[A], NULL, "10.0.0.2", 7000, &world->id[A]));
	expect(world->cm[A], SNT__CM_EVENT_RESOLVED);
	move_qp(world->kit, A, world->id[A], IBV_QPS_INIT);
	assert_success(table->connect(world->id[A], &param));
	kit_run_for(world->kit, 1000);
	world->id[B] = expect(world->cm[B], SNT__CM_EVENT_REQUEST).id;
	assert_int_equal(world->id[B]->device, 0);
	return open_for(world->kit, A, 2);
}

/* It is accepted there, and outlives the manager that it came to. */
static void request_moves(void **state)
{
	struct world world;
	struct snt__cm *other = take_request(&world);
	struct snt__cm_param param = param_of(world.kit, B, "from B");

	(void)state;
	assert_success(table->move(world.id[B], world.cm[B]));
	assert_success(table->move(world.id[B], other));
	assert_ptr_equal(world.id[B]->cm, other);
	assert_int_equal(world.id[B]->device, 1);
	table->destroy(world.listener);
	world.listener = NULL;
	assert_success(table->close(world.cm[B]));
	world.cm[B] = other;
	assert_error(table->close(other), EBUSY, "has connections");
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		move_qp(world.kit, B, world.id[B], to);
	assert_success(table->accept(world.id[B], &param));
	kit_run_for(world.kit, 1000);
	expect(world.cm[A], SNT__CM_EVENT_RESPONSE);
	move_qp(world.kit, A, world.id[A], IBV_QPS_RTR);
	move_qp(world.kit, A, world.id[A], IBV_QPS_RTS);
	assert_success(table->establish(world.id[A]));
	kit_run_for(world.kit, 1000);
	assert_ptr_equal(expect(other, SNT__CM_EVENT_ESTABLISHED).id, world.id[B]);
	send_across(world.kit, A, 1);
	assert_success(table->disconnect(world.id[A]));
	kit_run_for(world.kit, 1000);
	expect(world.cm[A], SNT__CM_EVENT_DISCONNECTED);
	assert_ptr_equal(expect(other, SNT__CM_EVENT_DISCONNECTED).id, world.id[B]);
	close_world(&world);
}

/* The peer gives up before it is moved, or after. */
static void request_moves_with_its_end(void **state)
{
	(void)state;
	for (unsigned before = 0; before < 2; before++) {
		struct world world;
		struct snt__cm *other = take_request(&world);

		if (!before)
			assert_success(table->move(world.id[B], other));
		table->destroy(world.id[A]);
		world.id[A] = NULL;
		kit_run_for(world.kit, 1000);
		if (before) {
			/* As long as it takes to be forgotten by all but its owner. */
			kit_run_for(world.kit, UINT64_C(20000000000));
			assert_true(readable(world.cm[B]));
			assert_success(table->move(world.id[B], other));
		}
		assert_false(readable(world.cm[B]));
		expect_none(world.cm[B]);
		assert_ptr_equal(expect(other, SNT__CM_EVENT_REJECTED).id, world.id[B]);
		expect_none(other);
		assert_error(table->move(world.id[B], world.cm[B]), ENOTCONN, "move");
		table->destroy(world.id[B]);
		world.id[B] = NULL;
		assert_success(table->close(other));
		close_world(&world);
	}
}

static void request_stays(void **state)
{
	struct world world;
	struct snt__cm *other = take_request(&world);
	struct snt__cm_param param = param_of(world.kit, B, "from B");
	struct snt__cm verbs = { .table = &snt__cm_verbs };

	(void)state;
	/* Neither a listener moves, nor what began here. */
	assert_error(table->move(world.listener, other), ENOTCONN, "move");
	assert_error(table->move(world.id[A], other), ENOTCONN, "move");
	assert_error(table->move(world.id[B], world.cm[A]), EINVAL, "device");
	assert_error(table->move(world.id[B], &verbs), EINVAL, "device");
	assert_ptr_equal(world.id[B]->cm, world.cm[B]);
	assert_success(table->accept(world.id[B], &param));
	assert_error(table->move(world.id[B], other), ENOTCONN, "move");
	kit_run_for(world.kit, 1000);
	expect(world.cm[A], SNT__CM_EVENT_RESPONSE);
	assert_success(table->reject(world.id[A], NULL, 0));
	kit_run_for(world.kit, 1000);
	/* It is over, but it was accepted. */
	assert_error(table->move(world.id[B], other), ENOTCONN, "move");
	expect(world.cm[B], SNT__CM_EVENT_REJECTED);
	assert_success(table->close(other));
	close_world(&world);
}

static void open_fails(void **state)
{
	struct kit *kit = open_kit(false);
	struct snt__cm_device devices[2] = { { kit->end[A].context, 1 },
					     { kit->end[B].context, 1 } };
	struct snt__cm_opts opts = { .devices = devices, .device_count = 2 };
	struct snt__cm *cm = NULL;
	struct snt__cm_id *id = NULL;
	unsigned nth = 0;
	int ret;

	(void)state;
	do {
		fault_arm(++nth);
		ret = table->open(&opts, &cm);
		if (ret)
			assert_error(ret, ENOMEM, "manager");
	} while (ret);
	assert_true(nth > 10);
	fault_arm(1);
	assert_error(listen_on(cm, "0.0.0.0", 0, &id), ENOMEM, "listener");
	fault_arm(0);
	assert_success(table->close(cm));
	kit_close(kit);
}

/* The device dies: a waiting end learns in time that there is no answer. */
static void device_dies(void **state)
{
	struct world world = open_world(false);
	struct snt__cm_param param = param_of(world.kit, A, "anybody?");

	(void)state;
	assert_success(resolve(world.cm[A], NULL, "10.0.0.2", 7000, &world.id[A]));
	expect(world.cm[A], SNT__CM_EVENT_RESOLVED);
	snt__soft_device_kill(world.kit->end[A].device);
	assert_int_equal(expect(world.cm[A], SNT__CM_EVENT_FAILED).status, -ENODEV);
	assert_error(table->connect(world.id[A], &param), ENOTCONN, "connect");
	table->destroy(world.id[A]);

	assert_success(resolve(world.cm[A], NULL, "10.0.0.2", 7000, &world.id[A]));
	expect(world.cm[A], SNT__CM_EVENT_RESOLVED);
	assert_success(table->connect(world.id[A], &param));
	kit_run_for(world.kit, UINT64_C(10000000000));
	assert_int_equal(expect(world.cm[A], SNT__CM_EVENT_FAILED).status, -ENODEV);
	expect_none(world.cm[B]);
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_ipv4),
		cmocka_unit_test(over_ipv6),
		cmocka_unit_test(data_before_rtu),
		cmocka_unit_test(rejected),
		cmocka_unit_test(destroyed_with_events),
		cmocka_unit_test(where_to_listen),
		cmocka_unit_test(too_many_listeners),
		cmocka_unit_test(where_to_connect),
		cmocka_unit_test(two_devices),
		cmocka_unit_test(address_lost),
		cmocka_unit_test(devices_of_managers),
		cmocka_unit_test(device_has_an_agent),
		cmocka_unit_test(managers_share_a_device),
		cmocka_unit_test(managers_share_limits),
		cmocka_unit_test(request_moves),
		cmocka_unit_test(request_moves_with_its_end),
		cmocka_unit_test(request_stays),
		cmocka_unit_test(open_fails),
		cmocka_unit_test(device_dies),
	};

	return cmocka_run_group_tests_name("cm_table", tests, NULL, NULL);
}
