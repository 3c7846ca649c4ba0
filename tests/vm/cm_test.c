/* SPDX-License-Identifier: MIT */
/*
 * The table of dev/cm.h on the kernel's rdma_cm: two managers on one device, which
 * reaches itself. With "--client PHASE PORT" the program is a peer that dies half-way.
 */
#include "lib/test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/cm.h"
#include "vm/guest_device.h"

#define WAIT_MS 20000

enum {
	A, /* the connecting end */
	B, /* the listening end */
	ENDS
};

static const struct snt__cm_table *const table = &snt__cm_verbs;
static const char *program;

struct end {
	struct snt__cm *cm;
	struct snt__cm_id *id;
	struct guest_qp own;
};

struct world {
	struct end end[ENDS];
	struct snt__cm_id *listener;
	struct sockaddr_in at;
};

/*
 * Events
 */

static struct snt__cm_event next_event(struct snt__cm *cm,
				       enum snt__cm_event_type expected)
{
	struct pollfd wait = { .fd = table->fd(cm), .events = POLLIN };
	struct snt__cm_event event;
	int ret;

	/* What the program need not know makes the fd readable as well. */
	while ((ret = table->next_event(cm, &event)) == -EAGAIN)
		assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	assert_success(ret);
	if (event.type != expected)
		print_error("event %d, status %d, reason %u\n", event.type,
			    event.status, event.reason);
	assert_int_equal(event.type, expected);
	assert_ptr_equal(event.id->cm, cm);
	return event;
}

static void expect(struct end *end, enum snt__cm_event_type type)
{
	assert_ptr_equal(next_event(end->cm, type).id, end->id);
}

static void expect_none(struct snt__cm *cm)
{
	struct snt__cm_event event;

	assert_int_equal(table->next_event(cm, &event), -EAGAIN);
}

/*
 * Ends
 */

static struct snt__cm *open_manager(unsigned connection_max)
{
	struct snt_device_info info = { .size = sizeof(info) };
	struct snt__cm_device on = { snt_device_context(guest.device), 1 };
	struct snt__cm_opts opts = { .devices = &on,
				     .device_count = 1,
				     .connection_max = connection_max };
	struct snt__cm *cm = NULL;

	assert_success(snt_device_query(guest.device, &info));
	on.port = (uint8_t)info.port;
	assert_success(table->open(&opts, &cm));
	return cm;
}

static struct ibv_qp_attr move_to(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	assert_success(table->qp_attr(end->id, &attr, &mask));
	assert_success(guest.control->modify_qp(end->own.qp, &attr, mask));
	return attr;
}

static struct snt__cm_param param_of(const struct end *end, const char *word)
{
	return (struct snt__cm_param){
		.data = word,
		.data_length = (uint8_t)(strlen(word) + 1),
		.qpn = end->own.qp->qp_num,
		.responder_resources = 200, /* more than there are */
		.initiator_depth = 3,
		.retry_count = 6,
		.rnr_retry_count = 5,
		.ack_timeout = 15,
	};
}

static void destroy_end(struct end *end)
{
	guest_qp_destroy(&end->own);
	table->destroy(end->id);
	end->id = NULL;
}

static struct world open_world(void)
{
	struct world world = { .at = guest.address };
	struct sockaddr_storage local, peer;

	for (unsigned end = 0; end < ENDS; end++)
		world.end[end].cm = open_manager(0);
	assert_success(table->listen(world.end[B].cm, (struct sockaddr *)&world.at, 8,
				     &world.listener));
	table->addresses(world.listener, &local, &peer);
	assert_int_equal(local.ss_family, AF_INET);
	assert_int_equal(peer.ss_family, AF_UNSPEC);
	world.at.sin_port = ((struct sockaddr_in *)&local)->sin_port;
	assert_int_not_equal(world.at.sin_port, 0);
	return world;
}

static void close_world(struct world *world)
{
	for (unsigned end = 0; end < ENDS; end++)
		destroy_end(&world->end[end]);
	table->destroy(world->listener);
	for (unsigned end = 0; end < ENDS; end++)
		assert_success(table->close(world->end[end].cm));
}

/*
 * Steps
 */

static void resolve(struct end *end, struct sockaddr_in *to)
{
	assert_success(table->resolve(end->cm, NULL, (struct sockaddr *)to, WAIT_MS,
				      &end->id));
	expect(end, SNT__CM_EVENT_RESOLVED);
	assert_int_equal(end->id->device, 0);
}

static void start_connect(struct end *end, struct sockaddr_in *to)
{
	struct snt__cm_param param;

	resolve(end, to);
	guest_qp_create(&end->own);
	assert_int_equal(move_to(end, IBV_QPS_INIT).qp_access_flags,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	param = param_of(end, "from the client");
	assert_success(table->connect(end->id, &param));
}

static void take_request(struct world *world)
{
	struct end *end = &world->end[B];
	struct snt__cm_event event = next_event(end->cm, SNT__CM_EVENT_REQUEST);

	assert_ptr_equal(event.listener, world->listener);
	assert_string_equal((char *)event.data, "from the client");
	assert_int_equal(event.data_length, SNT__CM_REQUEST_DATA);
	assert_int_equal(event.responder_resources, 3);
	assert_int_equal(event.rnr_retry_count, 5);
	end->id = event.id;
}

static void accept_request(struct end *end)
{
	struct snt__cm_param param;
	struct ibv_qp_attr attr;

	guest_qp_create(&end->own);
	move_to(end, IBV_QPS_INIT);
	attr = move_to(end, IBV_QPS_RTR);
	assert_int_equal(attr.min_rnr_timer, SNT__CM_RNR_TIMER);
	attr = move_to(end, IBV_QPS_RTS);
	assert_int_equal(attr.retry_cnt, 6);
	assert_int_equal(attr.rnr_retry, 5);
	param = param_of(end, "from the server");
	assert_success(table->accept(end->id, &param));
}

static void take_response(struct end *end)
{
	struct snt__cm_event event = next_event(end->cm, SNT__CM_EVENT_RESPONSE);

	assert_ptr_equal(event.id, end->id);
	assert_string_equal((char *)event.data, "from the server");
	assert_int_equal(event.data_length, SNT__CM_RESPONSE_DATA);
}

static void establish(struct end *end)
{
	take_response(end);
	move_to(end, IBV_QPS_RTR);
	move_to(end, IBV_QPS_RTS);
	assert_success(table->establish(end->id));
}

static void connect_world(struct world *world)
{
	start_connect(&world->end[A], &world->at);
	take_request(world);
	accept_request(&world->end[B]);
	establish(&world->end[A]);
	expect(&world->end[B], SNT__CM_EVENT_ESTABLISHED);
}

static void send_across(struct end *from, struct end *to)
{
	guest_qp_send(&from->own, &to->own);
}

/*
 * Tests
 */

static void connect_send_disconnect(void **state)
{
	(void)state;
	for (unsigned closer = 0; closer < ENDS; closer++) {
		struct world world = open_world();
		struct sockaddr_storage local[ENDS], peer[ENDS];

		connect_world(&world);
		for (unsigned end = 0; end < ENDS; end++)
			table->addresses(world.end[end].id, &local[end], &peer[end]);
		assert_memory_equal(&local[A], &peer[B], sizeof(struct sockaddr_in));
		assert_memory_equal(&local[B], &peer[A], sizeof(struct sockaddr_in));
		send_across(&world.end[A], &world.end[B]);
		send_across(&world.end[B], &world.end[A]);
		assert_error(table->close(world.end[A].cm), EBUSY, "has connections");
		assert_success(table->disconnect(world.end[closer].id));
		/* The other end answers by itself, when it is told. */
		expect(&world.end[!closer], SNT__CM_EVENT_DISCONNECTED);
		expect(&world.end[closer], SNT__CM_EVENT_DISCONNECTED);
		assert_success(table->disconnect(world.end[!closer].id));
		assert_success(table->disconnect(world.end[closer].id));
		expect_none(world.end[A].cm);
		expect_none(world.end[B].cm);
		close_world(&world);
	}
}

static void both_disconnect(void **state)
{
	struct world world = open_world();

	(void)state;
	connect_world(&world);
	for (unsigned end = 0; end < ENDS; end++)
		assert_success(table->disconnect(world.end[end].id));
	for (unsigned end = 0; end < ENDS; end++)
		expect(&world.end[end], SNT__CM_EVENT_DISCONNECTED);
	close_world(&world);
}

static void nobody_listens(void **state)
{
	struct world world = open_world();
	struct snt__cm_event event;

	(void)state;
	table->destroy(world.listener);
	world.listener = NULL;
	start_connect(&world.end[A], &world.at);
	event = next_event(world.end[A].cm, SNT__CM_EVENT_REJECTED);
	assert_int_equal(event.reason, SNT__CM_REASON_NOBODY_LISTENS);
	/* There is no second try with the same id. */
	assert_error(table->establish(world.end[A].id), ENOTCONN, "establish");
	assert_success(table->disconnect(world.end[A].id));
	close_world(&world);
}

static void passive_rejects(void **state)
{
	struct world world = open_world();
	struct snt__cm_event event;

	(void)state;
	start_connect(&world.end[A], &world.at);
	take_request(&world);
	assert_success(table->reject(world.end[B].id, "too many", 9));
	assert_error(table->reject(world.end[B].id, "x", 2), ENOTCONN, "reject");
	event = next_event(world.end[A].cm, SNT__CM_EVENT_REJECTED);
	assert_ptr_equal(event.id, world.end[A].id);
	assert_int_equal(event.reason, SNT__CM_REASON_CONSUMER);
	assert_string_equal((char *)event.data, "too many");
	assert_int_equal(event.data_length, SNT__CM_REJECT_DATA);
	close_world(&world);
}

static void active_rejects(void **state)
{
	struct world world = open_world();
	struct snt__cm_event event;

	(void)state;
	start_connect(&world.end[A], &world.at);
	take_request(&world);
	accept_request(&world.end[B]);
	take_response(&world.end[A]);
	assert_success(table->reject(world.end[A].id, "not you", 8));
	event = next_event(world.end[B].cm, SNT__CM_EVENT_REJECTED);
	assert_ptr_equal(event.id, world.end[B].id);
	assert_int_equal(event.reason, SNT__CM_REASON_CONSUMER);
	assert_string_equal((char *)event.data, "not you");
	close_world(&world);
}

static void not_in_this_state(void **state)
{
	struct world world = open_world();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	const char much[57] = { 0 };
	struct snt__cm_param param = { .data = much, .data_length = sizeof(much) };
	struct snt__cm_id *none = NULL;
	struct sockaddr_in nowhere = world.at;
	int mask;

	(void)state;
	resolve(&world.end[A], &world.at);
	assert_error(table->qp_attr(world.end[A].id, &attr, &mask), ENOTCONN,
		     "attributes");
	attr.qp_state = IBV_QPS_ERR;
	assert_error(table->qp_attr(world.end[A].id, &attr, &mask), EINVAL, "state");
	assert_error(table->connect(world.end[A].id, &param), EINVAL, "57");
	assert_error(table->accept(world.end[A].id, &param), ENOTCONN, "accept");
	assert_error(table->disconnect(world.end[A].id), ENOTCONN, "disconnect");
	assert_success(table->notify(world.end[A].id));
	/* The port is taken; and no host has this address. */
	assert_error(table->listen(world.end[A].cm, (struct sockaddr *)&world.at, 1,
				   &none),
		     EADDRINUSE, "listen");
	assert_int_equal(inet_pton(AF_INET, "192.0.2.1", &nowhere.sin_addr), 1);
	assert_error(table->listen(world.end[A].cm, (struct sockaddr *)&nowhere, 1,
				   &none),
		     EADDRNOTAVAIL, "listen");
	close_world(&world);
}

/* Many at once, answered in another order: events are told apart by their id. */
static void many(void **state)
{
	enum {
		COUNT = 12
	};
	struct world world = open_world();
	struct end client[COUNT] = { 0 }, server[COUNT] = { 0 };

	(void)state;
	for (unsigned i = 0; i < COUNT; i++) {
		client[i].cm = world.end[A].cm;
		start_connect(&client[i], &world.at);
		client[i].id->user = &client[i];
		take_request(&world);
		server[i] = world.end[B];
		server[i].id->user = &server[i];
		world.end[B].id = NULL;
	}
	for (unsigned i = COUNT; i-- > 0;)
		accept_request(&server[i]);
	for (unsigned i = 0; i < COUNT; i++) {
		struct snt__cm_event event =
			next_event(world.end[A].cm, SNT__CM_EVENT_RESPONSE);
		struct end *end = event.id->user;

		assert_ptr_equal(end->id, event.id);
		move_to(end, IBV_QPS_RTR);
		move_to(end, IBV_QPS_RTS);
		assert_success(table->establish(end->id));
	}
	for (unsigned i = 0; i < COUNT; i++)
		next_event(world.end[B].cm, SNT__CM_EVENT_ESTABLISHED);
	for (unsigned i = 0; i < COUNT; i++)
		send_across(&client[i], &server[i]);
	/* The listener goes, and they stay. */
	table->destroy(world.listener);
	world.listener = NULL;
	for (unsigned i = 0; i < COUNT; i++)
		send_across(&server[i], &client[i]);
	for (unsigned i = 0; i < COUNT; i++)
		destroy_end(&client[i]);
	for (unsigned i = 0; i < COUNT; i++) {
		struct snt__cm_event event =
			next_event(world.end[B].cm, SNT__CM_EVENT_DISCONNECTED);

		destroy_end(event.id->user);
	}
	close_world(&world);
}

/* A request is accepted by another manager, and outlives the one that it came to. */
static void request_moves(void **state)
{
	struct world world = open_world();
	struct snt__cm *other = open_manager(0);

	(void)state;
	start_connect(&world.end[A], &world.at);
	take_request(&world);
	assert_success(table->move(world.end[B].id, other));
	assert_ptr_equal(world.end[B].id->cm, other);
	table->destroy(world.listener);
	world.listener = NULL;
	expect_none(world.end[B].cm);
	assert_success(table->close(world.end[B].cm));
	world.end[B].cm = other;
	accept_request(&world.end[B]);
	assert_error(table->move(world.end[B].id, other), ENOTCONN, "move");
	establish(&world.end[A]);
	expect(&world.end[B], SNT__CM_EVENT_ESTABLISHED);
	send_across(&world.end[A], &world.end[B]);
	assert_success(table->disconnect(world.end[A].id));
	/* A's answer is sent when B takes its event. */
	expect(&world.end[B], SNT__CM_EVENT_DISCONNECTED);
	expect(&world.end[A], SNT__CM_EVENT_DISCONNECTED);
	close_world(&world);
}

/* A client too many is refused, and the others are not disturbed. */
static void limit(void **state)
{
	struct world world = open_world();
	struct end more = { .cm = world.end[A].cm };

	(void)state;
	table->destroy(world.listener);
	assert_success(table->close(world.end[B].cm));
	world.end[B].cm = open_manager(1);
	assert_success(table->listen(world.end[B].cm, (struct sockaddr *)&world.at, 0,
				     &world.listener));
	connect_world(&world);
	start_connect(&more, &world.at);
	/* Refused when it is looked at. */
	while (true) {
		struct pollfd wait = { .fd = table->fd(more.cm), .events = POLLIN };

		expect_none(world.end[B].cm);
		if (poll(&wait, 1, 10) == 1)
			break;
	}
	expect(&more, SNT__CM_EVENT_REJECTED);
	send_across(&world.end[A], &world.end[B]);
	destroy_end(&more);
	close_world(&world);
}

/*
 * Letting go
 */

enum phase {
	REQ_SENT,
	REQ_TAKEN,
	REP_SENT,
	RESPONSE_TAKEN,
	CONNECTED,
	PHASES
};

static void reach(struct world *world, enum phase phase)
{
	start_connect(&world->end[A], &world->at);
	if (phase >= REQ_TAKEN)
		take_request(world);
	if (phase >= REP_SENT)
		accept_request(&world->end[B]);
	if (phase == RESPONSE_TAKEN)
		take_response(&world->end[A]);
	if (phase >= CONNECTED) {
		establish(&world->end[A]);
		expect(&world->end[B], SNT__CM_EVENT_ESTABLISHED);
	}
}

/* The final event of an id, whatever comes before it. */
static void expect_end(struct end *end)
{
	struct pollfd wait = { .fd = table->fd(end->cm), .events = POLLIN };
	struct snt__cm_event event = { 0 };

	do {
		int ret = table->next_event(end->cm, &event);

		if (ret == -EAGAIN) {
			assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
			continue;
		}
		assert_success(ret);
		assert_ptr_equal(event.id, end->id);
	} while (event.type < SNT__CM_EVENT_REJECTED);
	expect_none(end->cm);
}

/* The kernel does not tell a program that has a request of its sender's end before it
 * answers, and after that only in a minute. */
static bool is_told(enum phase phase, unsigned who)
{
	return phase > REQ_TAKEN || (phase == REQ_TAKEN && who == B);
}

static void let_go_in_every_phase(void **state)
{
	(void)state;
	for (unsigned phase = 0; phase < PHASES; phase++) {
		for (unsigned who = 0; who < ENDS; who++) {
			struct world world = open_world();

			reach(&world, phase);
			destroy_end(&world.end[who]);
			if (is_told(phase, who))
				expect_end(&world.end[!who]);
			close_world(&world);
		}
	}
}

/* Requests that were not taken, when their listener goes. */
static void listener_goes(void **state)
{
	struct world world = open_world();
	struct pollfd wait = { .fd = table->fd(world.end[B].cm), .events = POLLIN };

	(void)state;
	start_connect(&world.end[A], &world.at);
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	table->destroy(world.listener);
	world.listener = NULL;
	expect_end(&world.end[A]);
	expect_none(world.end[B].cm);
	close_world(&world);
}

/*
 * Death of the peer's process
 */

/* The peer: gets to a phase, says so on stdout, and waits to be killed. */
static int be_client(enum phase phase, uint16_t port)
{
	struct end end = { 0 };
	struct sockaddr_in to;

	guest_open();
	end.cm = open_manager(0);
	to = guest.address;
	to.sin_port = htons(port);
	start_connect(&end, &to);
	if (phase == RESPONSE_TAKEN)
		take_response(&end);
	if (phase == CONNECTED)
		establish(&end);
	if (write(STDOUT_FILENO, "!", 1) == 1)
		pause();
	return 1;
}

static pid_t start_client(enum phase phase, uint16_t port, int *pipe_out)
{
	char phase_text[8], port_text[8];
	int fds[2];
	pid_t child;

	snprintf(phase_text, sizeof(phase_text), "%d", phase);
	snprintf(port_text, sizeof(port_text), "%u", port);
	assert_int_equal(pipe(fds), 0);
	child = fork();
	if (!child) {
		dup2(fds[1], STDOUT_FILENO);
		execl(program, program, "--client", phase_text, port_text,
		      (char *)NULL);
		_exit(127);
	}
	assert_true(child > 0);
	close(fds[1]);
	*pipe_out = fds[0];
	return child;
}

static void peer_dies_in_every_phase(void **state)
{
	(void)state;
	for (unsigned phase = REQ_TAKEN; phase < PHASES; phase++) {
		struct world world = open_world();
		struct end *end = &world.end[B];
		int out, status;
		pid_t child = start_client(phase, ntohs(world.at.sin_port), &out);
		char ready;

		take_request(&world);
		if (phase >= REP_SENT)
			accept_request(end);
		if (phase >= CONNECTED)
			expect(end, SNT__CM_EVENT_ESTABLISHED);
		assert_int_equal(read(out, &ready, 1), 1);
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		close(out);
		if (is_told(phase, A))
			expect_end(end);
		close_world(&world);
	}
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_send_disconnect),
		cmocka_unit_test(both_disconnect),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(passive_rejects),
		cmocka_unit_test(active_rejects),
		cmocka_unit_test(not_in_this_state),
		cmocka_unit_test(many),
		cmocka_unit_test(request_moves),
		cmocka_unit_test(limit),
		cmocka_unit_test(let_go_in_every_phase),
		cmocka_unit_test(listener_goes),
		cmocka_unit_test(peer_dies_in_every_phase),
	};

	program = argv[0];
	if (argc == 4 && !strcmp(argv[1], "--client"))
		return be_client((enum phase)strtoul(argv[2], NULL, 10),
				 (uint16_t)strtoul(argv[3], NULL, 10));
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
