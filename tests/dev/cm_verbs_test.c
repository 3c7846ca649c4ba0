/* SPDX-License-Identifier: MIT */
/* The table over librdmacm, one that is made up: what kernels rarely do, and each call
 * failing. tests/vm/cm_test.c is about the real one. */
#include "lib/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

#include "dev/cm.h"
#include "lib/devices/rdmacm_fake.h"
#include "lib/devices/verbs_fake.h"
#include "lib/fault.h"

static const struct snt__cm_table *const table = &snt__cm_verbs;
static struct ibv_context *context, *foreign;
static struct snt__cm *cm;
static struct sockaddr_in somewhere, anywhere;

static int open_manager(unsigned connection_max)
{
	struct snt__cm_device on[2] = { { context, 2 }, { context, 1 } };
	struct snt__cm_opts opts = { .devices = on,
				     .device_count = 2,
				     .connection_max = connection_max,
				     .listener_max = 2 };

	return table->open(&opts, &cm);
}

static int set_up(void **state)
{
	struct ibv_device **list;
	int count;

	(void)state;
	fake_reset();
	fake_cm_reset();
	fake_add("mlx5_0", 2);
	fake_add("mlx5_1", 1);
	list = ibv_get_device_list(&count);
	context = ibv_open_device(list[0]);
	foreign = ibv_open_device(list[1]);
	ibv_free_device_list(list);
	fake_cm_route(context, 1);
	somewhere.sin_family = anywhere.sin_family = AF_INET;
	somewhere.sin_addr.s_addr = htonl(0x0a000001);
	cm = NULL;
	assert_success(open_manager(2));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_success(table->close(cm));
	assert_int_equal(fake_cm_live(), 0);
	ibv_close_device(context);
	ibv_close_device(foreign);
	assert_int_equal(fake_live(), 0);
	return 0;
}

/*
 * Steps
 */

static void push(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status)
{
	fake_cm_push(&(struct fake_news){ .id = id, .type = type, .status = status });
}

static struct snt__cm_event expect(enum snt__cm_event_type type)
{
	struct snt__cm_event event;

	assert_success(table->next_event(cm, &event));
	assert_int_equal(event.type, type);
	return event;
}

static void expect_none(void)
{
	struct snt__cm_event event;

	assert_int_equal(table->next_event(cm, &event), -EAGAIN);
}

static struct snt__cm_id *resolve(struct rdma_cm_id **rdma)
{
	struct snt__cm_id *id = NULL;

	assert_success(
		table->resolve(cm, NULL, (struct sockaddr *)&somewhere, 100, &id));
	*rdma = fake_cm_last();
	return id;
}

static struct snt__cm_id *resolved(struct rdma_cm_id **rdma)
{
	struct snt__cm_id *id = resolve(rdma);

	push(*rdma, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	push(*rdma, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	assert_ptr_equal(expect(SNT__CM_EVENT_RESOLVED).id, id);
	/* It is the second of the two that were given. */
	assert_int_equal(id->device, 1);
	return id;
}

static struct snt__cm_id *connecting(struct rdma_cm_id **rdma)
{
	struct snt__cm_param param = { .qpn = 17 };
	struct snt__cm_id *id = resolved(rdma);

	assert_success(table->connect(id, &param));
	return id;
}

static struct snt__cm_id *listen_anywhere(struct rdma_cm_id **rdma)
{
	struct snt__cm_id *id = NULL;

	assert_success(table->listen(cm, (struct sockaddr *)&anywhere, 0, &id));
	*rdma = fake_cm_last();
	return id;
}

static void push_request(struct rdma_cm_id *listener, struct ibv_context *over,
			 uint8_t port)
{
	fake_cm_push(&(struct fake_news){ .id = listener,
					  .type = RDMA_CM_EVENT_CONNECT_REQUEST,
					  .context = over,
					  .port = port,
					  .param = { .private_data = "hello",
						     .private_data_len = 6,
						     .qp_num = 99,
						     .responder_resources = 3,
						     .initiator_depth = 4 } });
}

/*
 * What kernels do
 */

static void how_it_fails(void **state)
{
	static const struct {
		enum rdma_cm_event_type type;
		int status, expected;
	} cases[] = {
		{ RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, -ENODEV },
		{ RDMA_CM_EVENT_ROUTE_ERROR, ETIMEDOUT, -ETIMEDOUT },
		{ RDMA_CM_EVENT_CONNECT_ERROR, 0, -EIO },
		{ RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, -ETIMEDOUT },
		{ RDMA_CM_EVENT_DEVICE_REMOVAL, 0, -ENODEV },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rdma_cm_id *rdma;
		struct snt__cm_id *id = connecting(&rdma);
		struct snt__cm_event event;

		push(rdma, cases[i].type, cases[i].status);
		/* What comes after that is not reported. */
		push(rdma, RDMA_CM_EVENT_DISCONNECTED, 0);
		push(rdma, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		event = expect(SNT__CM_EVENT_FAILED);
		assert_ptr_equal(event.id, id);
		assert_int_equal(event.status, cases[i].expected);
		expect_none();
		assert_success(table->disconnect(id));
		assert_error(table->establish(id), ENOTCONN, "establish");
		table->destroy(id);
	}
}

static void what_is_no_end(void **state)
{
	struct rdma_cm_id *rdma;
	struct snt__cm_id *id = connecting(&rdma);

	(void)state;
	push(rdma, RDMA_CM_EVENT_ADDR_CHANGE, 0);
	push(rdma, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	push(rdma, RDMA_CM_EVENT_MULTICAST_ERROR, 0);
	push(rdma, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	assert_ptr_equal(expect(SNT__CM_EVENT_ADDRESS).id, id);
	expect(SNT__CM_EVENT_RESPONSE);
	expect_none();
	table->destroy(id);
}

/* On all addresses of IPv6 it hears IPv4, too, whatever the system's default is; on
 * those of IPv4 nothing else. */
static void listener_on_all_addresses_hears_ipv4(void **state)
{
	struct sockaddr_in6 all = { .sin6_family = AF_INET6 };
	struct rdma_cm_id *rdma;
	struct snt__cm_id *id = listen_anywhere(&rdma);

	(void)state;
	assert_int_equal(fake_cm_one_family, -1);
	table->destroy(id);
	assert_success(table->listen(cm, (struct sockaddr *)&all, 0, &id));
	assert_int_equal(fake_cm_one_family, 0);
	table->destroy(id);
}

/* A listener whose device goes is told, too, and is still a listener. */
static void listener_loses_its_device(void **state)
{
	struct rdma_cm_id *rdma;
	struct snt__cm_id *id = listen_anywhere(&rdma);

	(void)state;
	push(rdma, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	assert_ptr_equal(expect(SNT__CM_EVENT_FAILED).id, id);
	table->destroy(id);
}

static void requests(void **state)
{
	struct rdma_cm_id *rdma;
	struct snt__cm_id *listener = listen_anywhere(&rdma);
	struct snt__cm_param param = { .qpn = 5,
				       .responder_resources = 255,
				       .initiator_depth = 255 };
	struct snt__cm_event event;

	(void)state;
	/* Over a device, or a port, that is not ours. */
	push_request(rdma, foreign, 1);
	push_request(rdma, context, 3);
	push_request(rdma, context, 2);
	event = expect(SNT__CM_EVENT_REQUEST);
	assert_int_equal(fake_cm_calls("reject"), 2);
	assert_int_equal(event.id->device, 0);
	assert_ptr_equal(event.listener, listener);
	assert_string_equal((char *)event.data, "hello");
	assert_int_equal(event.data_length, SNT__CM_REQUEST_DATA);
	assert_int_equal(event.qpn, 99);
	assert_int_equal(event.responder_resources, 3);
	assert_int_equal(event.initiator_depth, 4);
	/* What the device cannot do librdmacm would refuse. */
	assert_success(table->accept(event.id, &param));
	assert_true(fake_cm_param.responder_resources < 255);
	assert_true(fake_cm_param.initiator_depth < 255);
	assert_int_equal(fake_cm_param.qp_num, 5);
	assert_success(table->notify(event.id));
	assert_int_equal(fake_cm_calls("notify"), 1);
	/* The peer's DREQ is answered at once. */
	push(fake_cm_last(), RDMA_CM_EVENT_ESTABLISHED, 0);
	push(fake_cm_last(), RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(SNT__CM_EVENT_ESTABLISHED);
	expect(SNT__CM_EVENT_DISCONNECTED);
	assert_int_equal(fake_cm_calls("disconnect"), 1);
	assert_success(table->notify(event.id));
	assert_int_equal(fake_cm_calls("notify"), 1);
	table->destroy(event.id);
	table->destroy(listener);
}

static struct snt__cm *open_other(const struct snt__cm_device *on, unsigned count)
{
	struct snt__cm_opts opts = { .devices = on,
				     .device_count = count,
				     .connection_max = 1 };
	struct snt__cm *other = NULL;

	assert_success(table->open(&opts, &other));
	return other;
}

/* Taken here, and accepted by another manager, which calls the device differently. */
static void request_moves(void **state)
{
	struct snt__cm_device on[2] = { { context, 1 }, { context, 2 } };
	struct snt__cm *first = cm, *other = open_other(on, 2);
	struct snt__cm_param param = { .qpn = 5 };
	struct rdma_cm_id *rdma;
	struct snt__cm_id *listener = listen_anywhere(&rdma), *id;

	(void)state;
	push_request(rdma, context, 2);
	id = expect(SNT__CM_EVENT_REQUEST).id;
	assert_int_equal(id->device, 0);
	assert_success(table->move(id, first));
	assert_int_equal(fake_cm_calls("migrate_id"), 0);
	/* What has happened by then comes there, too. */
	push(fake_cm_last(), RDMA_CM_EVENT_ADDR_CHANGE, 0);
	assert_success(table->move(id, other));
	assert_ptr_equal(id->cm, other);
	assert_int_equal(id->device, 1);
	expect_none();
	table->destroy(listener);
	assert_success(table->close(first));
	cm = other;
	assert_error(table->close(cm), EBUSY, "has connections");
	assert_ptr_equal(expect(SNT__CM_EVENT_ADDRESS).id, id);
	assert_success(table->accept(id, &param));
	assert_error(table->move(id, cm), ENOTCONN, "move");
	push(fake_cm_last(), RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ptr_equal(expect(SNT__CM_EVENT_ESTABLISHED).id, id);
	table->destroy(id);
}

static void request_stays(void **state)
{
	struct snt__cm_device on = { context, 2 }, port1 = { context, 1 };
	struct snt__cm *other = open_other(&on, 1), *wrong = open_other(&port1, 1);
	struct snt__cm soft = { .table = &snt__cm_soft };
	struct rdma_cm_id *rdma;
	struct snt__cm_id *listener = listen_anywhere(&rdma), *id[2];

	(void)state;
	assert_error(table->move(listener, other), ENOTCONN, "move");
	for (unsigned i = 0; i < 2; i++) {
		push_request(rdma, context, 2);
		id[i] = expect(SNT__CM_EVENT_REQUEST).id;
	}
	assert_error(table->move(id[0], wrong), EINVAL, "device");
	assert_error(table->move(id[0], &soft), EINVAL, "device");
	fault_arm(1);
	assert_error(table->move(id[0], other), FAKE_ERRNO, "rdma_migrate_id");
	fault_arm(0);
	assert_ptr_equal(id[0]->cm, cm);
	assert_success(table->close(wrong));
	assert_success(table->move(id[0], other));
	assert_error(table->move(id[1], other), ENOBUFS, "too many");
	assert_success(table->reject(id[1], NULL, 0));
	assert_error(table->move(id[1], other), ENOTCONN, "move");
	table->destroy(id[0]);
	table->destroy(id[1]);
	table->destroy(listener);
	assert_success(table->close(other));
}

static void limits(void **state)
{
	struct rdma_cm_id *rdma, *other;
	struct snt__cm_id *listener = listen_anywhere(&rdma), *more = NULL, *id[4];

	(void)state;
	/* Two of each device. */
	id[0] = resolve(&other);
	for (unsigned i = 0; i < 4; i++)
		push_request(rdma, NULL, 0);
	for (unsigned i = 1; i < 4; i++)
		id[i] = expect(SNT__CM_EVENT_REQUEST).id;
	expect_none();
	assert_int_equal(fake_cm_calls("reject"), 1);
	assert_error(table->resolve(cm, NULL, (struct sockaddr *)&somewhere, 1, &more),
		     ENOBUFS, "too many");
	for (unsigned i = 0; i < 4; i++)
		table->destroy(id[i]);
	id[0] = listen_anywhere(&other);
	assert_error(table->listen(cm, (struct sockaddr *)&anywhere, 0, &more), ENOBUFS,
		     "too many");
	assert_null(more);
	assert_error(table->close(cm), EBUSY, "has connections");
	table->destroy(id[0]);
	/* A request that there is no memory for. */
	push_request(rdma, NULL, 0);
	fault_arm(2); /* behind the event itself */
	expect_none();
	assert_string_equal(fault_name(), "calloc");
	assert_int_equal(fake_cm_calls("reject"), 2);
	table->destroy(listener);
}

static void where_it_leads(void **state)
{
	struct rdma_cm_id *rdma;
	struct snt__cm_id *id = NULL;

	(void)state;
	/* To a device that is not ours. */
	fake_cm_route(foreign, 1);
	id = resolve(&rdma);
	push(rdma, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_int_equal(expect(SNT__CM_EVENT_FAILED).status, -ENETUNREACH);
	table->destroy(id);
	id = NULL;
	assert_error(table->listen(cm, (struct sockaddr *)&somewhere, 0, &id),
		     EADDRNOTAVAIL, "listen");
	/* To none at all. */
	fake_cm_route(NULL, 0);
	assert_error(table->listen(cm, (struct sockaddr *)&somewhere, 0, &id),
		     EADDRNOTAVAIL, "listen");
	assert_null(id);
	fake_cm_route(context, 1);
	id = resolve(&rdma);
	push(rdma, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	fault_arm(2); /* behind the event itself */
	assert_int_equal(expect(SNT__CM_EVENT_FAILED).status, -FAKE_ERRNO);
	assert_string_equal(fault_name(), "resolve_route");
	table->destroy(id);
}

/*
 * Calls that fail
 */

#define assert_fails(call, phrase)                      \
	do {                                            \
		fault_arm(1);                           \
		assert_error(call, FAKE_ERRNO, phrase); \
		fault_arm(0);                           \
	} while (0)

static void each_call_fails(void **state)
{
	struct snt__cm_param param = { .qpn = 17, .ack_timeout = 14 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_id *rdma;
	struct snt__cm_id *id = resolved(&rdma);
	struct snt__cm_event event;
	int mask;

	(void)state;
	assert_fails(table->next_event(cm, &event), "rdma_get_cm_event");
	assert_fails(table->qp_attr(id, &attr, &mask), "rdma_init_qp_attr");
	/* Kernels that do not know the option do without. */
	fault_arm(1);
	assert_success(table->connect(id, &param));
	assert_string_equal(fault_name(), "set_option");
	assert_int_equal(fake_cm_timeout, 14);
	table->destroy(id);
	id = resolved(&rdma);
	param.ack_timeout = 0;
	assert_fails(table->connect(id, &param), "rdma_connect");
	assert_success(table->connect(id, &param));
	push(rdma, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	expect(SNT__CM_EVENT_RESPONSE);
	assert_fails(table->reject(id, NULL, 0), "rdma_reject");
	assert_fails(table->establish(id), "rdma_establish");
	assert_success(table->establish(id));
	assert_fails(table->disconnect(id), "rdma_disconnect");
	table->destroy(id);
}

static void each_constructor_fails(void **state)
{
	struct snt__cm_id *id = NULL;
	unsigned nth = 0;
	int ret;

	(void)state;
	do {
		fault_arm(++nth);
		ret = table->resolve(cm, NULL, (struct sockaddr *)&somewhere, 1, &id);
	} while (ret && fault_was_hit());
	assert_success(ret);
	assert_int_equal(nth, 4); /* memory, id, resolve */
	fault_arm(0);
	table->destroy(id);
	nth = 0;
	do {
		fault_arm(++nth);
		ret = table->listen(cm, (struct sockaddr *)&anywhere, 0, &id);
	} while (ret && fault_was_hit());
	assert_success(ret);
	assert_int_equal(nth, 5); /* memory, id, bind, listen */
	fault_arm(0);
	table->destroy(id);
	assert_success(table->close(cm));
	nth = 0;
	do {
		fault_arm(++nth);
		ret = open_manager(0);
	} while (ret && fault_was_hit());
	assert_success(ret);
	assert_true(nth > 3); /* memory, two devices, channel */
	fault_arm(0);
	assert_true(fcntl(table->fd(cm), F_GETFL) & O_NONBLOCK);
}

static void no_devices(void **state)
{
	struct snt__cm_opts opts = { 0 };
	struct snt__cm *none = NULL;

	(void)state;
	assert_error(table->open(&opts, &none), EINVAL, "1 to");
	assert_null(none);
	assert_success(table->close(NULL));
	table->destroy(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(how_it_fails),
		TEST(what_is_no_end),
		TEST(listener_on_all_addresses_hears_ipv4),
		TEST(listener_loses_its_device),
		TEST(requests),
		TEST(request_moves),
		TEST(request_stays),
		TEST(limits),
		TEST(where_it_leads),
		TEST(each_call_fails),
		TEST(each_constructor_fails),
		TEST(no_devices),
	};

	return cmocka_run_group_tests_name("cm_verbs", tests, NULL, NULL);
}
