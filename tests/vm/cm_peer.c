/* SPDX-License-Identifier: MIT */
/*
 * One end of connections by address, on whatever devices the environment selects: a
 * soft device and the kernel's stack talk to each other, or one of them to a program
 * that knows nothing of sennit.
 *
 * 	cm_peer listen|connect ADDRESS PORT LANGUAGE CONNECTIONS
 *
 * Languages: "messages", ten of 100 bytes from the listening end and ten back, as
 * ucmatose does; "rping"; "reject", by the listening end.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#include "dev/cm.h"

#define WAIT_MS	      60000
#define MESSAGES      10
#define MESSAGE_BYTES 100
#define PING_BYTES    64
#define PING_ROUNDS   3
#define SENDS	      100 /* the wr_id of all of them; below are slots */

#define CHECK(condition)                            \
	do {                                        \
		if (!(condition))                   \
			stop(#condition, __LINE__); \
	} while (0)

static void stop(const char *what, int line)
{
	fprintf(stderr, "cm_peer:%d: not so: %s (%s)\n", line, what, snt_err_text());
	exit(1);
}

/* What rping sends: where the other may read, or write. */
struct ping {
	uint64_t addr;
	uint32_t key;
	uint32_t size;
};

/* Each message lands, and begins, in a slot of its own. */
static struct {
	uint8_t in[MESSAGES][128];
	uint8_t out[MESSAGES][128];
	char ping[2][PING_BYTES];
} memory;

static struct snt_ctx *ctx;
static struct snt_device *device;
static const struct snt_control *control;
static const struct snt__cm_table *table;
static struct snt__cm *cm;
static struct snt__cm_id *id;
static struct snt_mem *mem;
static struct snt_token token;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

/* What has been completed, of this connection. Receives and sends come as they like. */
static struct {
	unsigned sends, receives;
	uint32_t length; /* of what was received, or read, last */
	unsigned slot;
} done;

/*
 * Connections
 */

static void open_all(void)
{
	struct snt_device_info info = { .size = sizeof(info) };
	struct snt__cm_device on;
	struct snt__cm_opts opts = { .devices = &on, .device_count = 1 };

	CHECK(!snt_ctx_create(NULL, &ctx));
	device = snt_ctx_device(ctx, 0);
	control = snt_device_control(device);
	table = control->cm;
	CHECK(!snt_device_query(device, &info));
	on = (struct snt__cm_device){ snt_device_context(device), (uint8_t)info.port };
	CHECK(!table->open(&opts, &cm));
	CHECK(!snt_mem_register(ctx, &memory, sizeof(memory),
				SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_READ |
					SNT_ACCESS_REMOTE_WRITE,
				&mem));
	CHECK(!snt_mem_token(mem, &token));
}

static void close_all(void)
{
	CHECK(!table->close(cm));
	CHECK(!snt_mem_release(mem));
	CHECK(!snt_ctx_destroy(ctx));
}

static struct snt__cm_event next_event(enum snt__cm_event_type type)
{
	struct pollfd wait = { .fd = table->fd(cm), .events = POLLIN };
	struct snt__cm_event event;

	while (table->next_event(cm, &event))
		if (poll(&wait, 1, WAIT_MS) != 1) {
			fprintf(stderr, "event %d does not come\n", type);
			CHECK(false);
		}
	return event;
}

/* A peer may be done with one connection, and ask for the next, before we know that the
 * first is over: what says so can get lost. */
static struct snt__cm_event expect(enum snt__cm_event_type type)
{
	static struct snt__cm_event early;
	struct snt__cm_event event = early;

	if (early.id && type == SNT__CM_EVENT_REQUEST) {
		early.id = NULL;
		return event;
	}
	event = next_event(type);
	if (event.type == SNT__CM_EVENT_REQUEST && type != event.type && !early.id) {
		early = event;
		event = next_event(type);
	}
	if (event.type != type)
		fprintf(stderr, "event %d, reason %u, status %d, not %d\n", event.type,
			event.reason, event.status, type);
	CHECK(event.type == type);
	return event;
}

static void create_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { 16, 16, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	memset(&done, 0, sizeof(done));
	CHECK(!control->create_cq(snt_device_context(device), 64, NULL, NULL, 0, &cq));
	attr.send_cq = attr.recv_cq = cq;
	CHECK(!control->create_qp(snt_device_pd(device), &attr, &qp));
}

static void move_to(enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(!table->qp_attr(id, &attr, &mask));
	CHECK(!control->modify_qp(qp, &attr, mask));
}

static void destroy(void)
{
	if (qp) {
		CHECK(!control->destroy_qp(qp));
		CHECK(!control->destroy_cq(cq));
	}
	qp = NULL;
	table->destroy(id);
}

static struct snt__cm_param param_of(void)
{
	return (struct snt__cm_param){
		.data = "from sennit",
		.data_length = 12,
		.qpn = qp->qp_num,
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.ack_timeout = 14,
	};
}

/*
 * Work
 */

static void post_recv(unsigned slot)
{
	struct ibv_recv_wr wr = { .wr_id = slot, .num_sge = 1 }, *bad;
	struct ibv_sge sge;

	CHECK(!snt_mem_sge(mem, 0, memory.in[slot] - (uint8_t *)&memory, 128, &sge));
	wr.sg_list = &sge;
	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void post(enum ibv_wr_opcode opcode, const void *at, uint32_t length,
		 const struct ping *to)
{
	struct ibv_send_wr wr = { .wr_id = SENDS,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .num_sge = 1 },
			   *bad;
	struct ibv_sge sge;

	CHECK(!snt_mem_sge(mem, 0, (const uint8_t *)at - (uint8_t *)&memory, length,
			   &sge));
	wr.sg_list = &sge;
	if (to) {
		wr.wr.rdma.remote_addr = be64toh(to->addr);
		wr.wr.rdma.rkey = be32toh(to->key);
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void await(unsigned sends, unsigned receives)
{
	for (unsigned i = 0; done.sends < sends || done.receives < receives; i++) {
		struct ibv_wc wc;

		CHECK(i < 10 * WAIT_MS);
		if (ibv_poll_cq(cq, 1, &wc) != 1) {
			poll(NULL, 0, i % 10 ? 0 : 1);
			continue;
		}
		if (wc.status)
			fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		CHECK(!wc.status);
		done.sends += wc.wr_id == SENDS;
		if (wc.wr_id == SENDS)
			continue;
		done.receives++;
		done.length = wc.byte_len;
		done.slot = (unsigned)wc.wr_id;
		CHECK(done.slot == (done.receives - 1) % MESSAGES);
	}
}

/*
 * Languages
 */

static void send_messages(void)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		memset(memory.out[i], 'a' + (int)i, MESSAGE_BYTES);
		post(IBV_WR_SEND, memory.out[i], MESSAGE_BYTES, NULL);
	}
}

static void receive_messages(bool known)
{
	await(0, MESSAGES);
	CHECK(done.length == MESSAGE_BYTES);
	for (unsigned i = 0; known && i < MESSAGES; i++)
		CHECK(memory.in[i][0] == 'a' + i &&
		      memory.in[i][MESSAGE_BYTES - 1] == 'a' + i);
}

/*
 * The listening end disconnects when it has everything, as ucmatose does. That is how
 * the other knows that all has arrived: acknowledgments may be lost, and if the peer's
 * QP is gone they are not sent again.
 */
static void speak_messages(bool listens, bool known)
{
	if (listens) {
		send_messages();
		await(MESSAGES, 0);
	}
	receive_messages(known);
	if (listens)
		CHECK(!table->disconnect(id));
	else
		send_messages();
}

static void send_ping(void *at)
{
	struct ping ping = { .addr = htobe64((uintptr_t)at),
			     .key = htobe32(token.key[0]),
			     .size = htobe32(PING_BYTES) };

	memcpy(memory.out[0], &ping, sizeof(ping));
	post(IBV_WR_SEND, memory.out[0], sizeof(ping), NULL);
}

static struct ping await_ping(void)
{
	struct ping ping;

	await(0, done.receives + 1);
	CHECK(done.length == sizeof(ping));
	memcpy(&ping, memory.in[done.slot], sizeof(ping));
	post_recv(done.slot);
	return ping;
}

/* Shows what it has, and sees it come back. */
static void speak_rping_first(void)
{
	for (unsigned i = 0; i < PING_ROUNDS; i++) {
		memset(memory.ping, 0, sizeof(memory.ping));
		snprintf(memory.ping[0], PING_BYTES, "sennit-ping-%u", i);
		send_ping(memory.ping[0]);
		await_ping();
		send_ping(memory.ping[1]);
		await_ping();
		CHECK(!memcmp(memory.ping[0], memory.ping[1], PING_BYTES));
	}
}

/* Reads what it is shown, and writes it back. */
static void speak_rping_second(void)
{
	for (unsigned i = 0; i < PING_ROUNDS; i++) {
		struct ping ping = await_ping();

		CHECK(be32toh(ping.size) == PING_BYTES);
		post(IBV_WR_RDMA_READ, memory.ping[0], PING_BYTES, &ping);
		/* All that was sent so far: two SENDs and a WRITE in each round. */
		await(4 * i + 1, 0);
		send_ping(memory.ping[0]);
		ping = await_ping();
		post(IBV_WR_RDMA_WRITE, memory.ping[0], PING_BYTES, &ping);
		send_ping(memory.ping[0]);
	}
}

/* Of the peer. */
static bool of_sennit(const struct snt__cm_event *event)
{
	return !memcmp(event->data, "from sennit", 12);
}

static void speak(const char *language, bool listens, const struct snt__cm_event *event)
{
	if (!strcmp(language, "messages"))
		speak_messages(listens, of_sennit(event));
	else if (listens)
		speak_rping_second();
	else
		speak_rping_first();
}

/*
 * Ends
 */

static void post_recvs(void)
{
	for (unsigned i = 0; i < MESSAGES; i++)
		post_recv(i);
}

static void serve_one(const char *language)
{
	struct snt__cm_event event = expect(SNT__CM_EVENT_REQUEST);
	struct snt__cm_param param;

	id = event.id;
	if (!strcmp(language, "reject")) {
		CHECK(!table->reject(id, "not today", 10));
		destroy();
		return;
	}
	create_qp();
	move_to(IBV_QPS_INIT);
	post_recvs();
	move_to(IBV_QPS_RTR);
	move_to(IBV_QPS_RTS);
	param = param_of();
	CHECK(!table->accept(id, &param));
	expect(SNT__CM_EVENT_ESTABLISHED);
	speak(language, true, &event);
	expect(SNT__CM_EVENT_DISCONNECTED);
	destroy();
}

static void connect_one(const struct sockaddr *address, const char *language)
{
	static bool told;
	struct snt__cm_event event;
	struct snt__cm_param param;

	CHECK(!table->resolve(cm, NULL, address, WAIT_MS, &id));
	expect(SNT__CM_EVENT_RESOLVED);
	create_qp();
	move_to(IBV_QPS_INIT);
	post_recvs();
	param = param_of();
	CHECK(!table->connect(id, &param));
	if (!strcmp(language, "reject")) {
		event = expect(SNT__CM_EVENT_REJECTED);
		/* A request that came twice is refused twice, since the kernel takes it
		 * for a new one: by the listener, which then ends before our last one
		 * comes; or by neither, when it ends. */
		CHECK(event.reason == SNT__CM_REASON_CONSUMER ||
		      (told && event.reason == SNT__CM_REASON_NOBODY_LISTENS));
		told |= !strcmp((char *)event.data, "not today");
		CHECK(told);
		destroy();
		return;
	}
	event = expect(SNT__CM_EVENT_RESPONSE);
	move_to(IBV_QPS_RTR);
	move_to(IBV_QPS_RTS);
	CHECK(!table->establish(id));
	speak(language, false, &event);
	if (strcmp(language, "messages") != 0)
		CHECK(!table->disconnect(id));
	expect(SNT__CM_EVENT_DISCONNECTED);
	destroy();
}

static struct sockaddr_storage read_address(const char *text, const char *port)
{
	struct sockaddr_storage address = { .ss_family = AF_INET };
	struct sockaddr_in *four = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;

	four->sin_port = htons((uint16_t)strtoul(port, NULL, 10));
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
		return address;
	address.ss_family = AF_INET6;
	CHECK(inet_pton(AF_INET6, text, &six->sin6_addr) == 1);
	return address;
}

int main(int argc, char **argv)
{
	struct snt__cm_id *listener = NULL;
	struct sockaddr_storage address;
	unsigned count;

	if (argc != 6)
		return 2;
	address = read_address(argv[2], argv[3]);
	count = (unsigned)strtoul(argv[5], NULL, 10);
	open_all();
	if (!strcmp(argv[1], "listen")) {
		CHECK(!table->listen(cm, (struct sockaddr *)&address, 0, &listener));
		printf("listening\n");
		fflush(stdout);
		while (count--)
			serve_one(argv[4]);
	} else {
		while (count--)
			connect_one((struct sockaddr *)&address, argv[4]);
	}
	table->destroy(listener);
	close_all();
	return 0;
}
