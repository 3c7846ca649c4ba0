/* SPDX-License-Identifier: MIT */
/*
 * Makes tests/vectors/rxe.inc: packets of the kernel's rxe as they cross the wire.
 * Not a test; tests/vm/capture.sh runs it in two guests. The client connects through
 * rdma_cm once per scenario, over IPv4 and IPv6, and listens in on its own interface.
 * Of packets that differ only in numbers and contents, the first is kept.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT	     7471
#define WAIT_MS	     5000
#define BUFFER_SIZE  4096
#define RECEIVE_SIZE 1024

#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

#define CHECK(condition)                            \
	do {                                        \
		if (!(condition))                   \
			stop(#condition, __LINE__); \
	} while (0)

static void stop(const char *what, int line)
{
	fprintf(stderr, "wire_capture:%d: not so: %s (%m)\n", line, what);
	exit(1);
}

/* What a client needs to reach the server's memory. */
struct token {
	uint64_t addr;
	uint32_t key;
};

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct token peer;
	uint8_t buffer[BUFFER_SIZE] __attribute__((aligned(8)));
};

struct scenario {
	void (*client)(struct end *end);
	bool reject;
	bool closed;	       /* to all remote access */
	unsigned receives;     /* that the server posts */
	unsigned receives_bad; /* the same, but with a local key that is wrong */
	uint32_t psn_ahead;    /* of what the server expects */
};

static void open_qp(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 32,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	for (unsigned i = 0; i < sizeof(end->buffer); i++)
		end->buffer[i] = (i * i * 31 + i * 7 + 3) >> 3;
	CHECK(end->pd = ibv_alloc_pd(end->id->verbs));
	CHECK(end->mr = ibv_reg_mr(end->pd, end->buffer, sizeof(end->buffer), ACCESS));
	CHECK(end->cq = ibv_create_cq(end->id->verbs, 64, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = end->cq;
	CHECK(end->qp = ibv_create_qp(end->pd, &attr));
}

static void close_end(struct end *end)
{
	if (end->qp) {
		CHECK(!ibv_destroy_qp(end->qp));
		CHECK(!ibv_destroy_cq(end->cq));
		CHECK(!ibv_dereg_mr(end->mr));
		CHECK(!ibv_dealloc_pd(end->pd));
	}
	CHECK(!rdma_destroy_id(end->id));
	rdma_destroy_event_channel(end->channel);
}

/* Packets of 256 bytes are enough, and errors should come soon. */
static void move_to(struct end *end, enum ibv_qp_state state,
		    const struct scenario *scenario)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(!rdma_init_qp_attr(end->id, &attr, &mask));
	attr.qp_access_flags = scenario->closed ? 0 : ACCESS;
	attr.path_mtu = IBV_MTU_256;
	attr.min_rnr_timer = 1;
	attr.timeout = 14;
	attr.retry_cnt = 1;
	attr.rnr_retry = 1;
	attr.sq_psn += scenario->psn_ahead;
	CHECK(!ibv_modify_qp(end->qp, &attr, mask));
}

static void expect(struct end *end, enum rdma_cm_event_type type, struct token *token)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(end->channel, &event));
	if (event->event != type)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event),
			event->status);
	CHECK(event->event == type);
	if (token)
		memcpy(token, event->param.conn.private_data, sizeof(*token));
	rdma_ack_cm_event(event);
}

static struct end open_id(void)
{
	struct end end = { 0 };

	CHECK(end.channel = rdma_create_event_channel());
	CHECK(!rdma_create_id(end.channel, &end.id, NULL, RDMA_PS_TCP));
	return end;
}

/* The client. */

static enum ibv_wc_status complete(struct end *end)
{
	struct ibv_wc wc;
	int count;

	do {
		count = ibv_poll_cq(end->cq, 1, &wc);
	} while (!count);
	CHECK(count == 1);
	return wc.status;
}

/* One WR of so many bytes, and its completion. Atomics and remote access go to the
 * given offset of the server's buffer. */
static enum ibv_wc_status run(struct end *end, enum ibv_wr_opcode opcode,
			      uint32_t length, unsigned offset, unsigned flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)end->buffer,
			       .length = length,
			       .lkey = end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = length > 0,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED | flags,
				  .imm_data = htonl(0x01020304) },
			   *bad;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = end->peer.addr + offset;
		wr.wr.atomic.rkey = end->peer.key;
		wr.wr.atomic.compare_add = UINT64_C(0x1122334455667788);
		wr.wr.atomic.swap = UINT64_C(0x99aabbccddeeff00);
	} else if (opcode == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = end->peer.key;
	} else {
		wr.wr.rdma.remote_addr = end->peer.addr + offset;
		wr.wr.rdma.rkey = end->peer.key;
	}
	CHECK(!ibv_post_send(end->qp, &wr, &bad));
	return complete(end);
}

static void send_all_sizes(struct end *end)
{
	static const uint32_t lengths[] = { 0, 1, 2, 3, 4, 512, 600, 605 };

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		unsigned flags = i & 1 ? IBV_SEND_SOLICITED : 0;

		CHECK(!run(end, IBV_WR_SEND, lengths[i], 0, flags));
		CHECK(!run(end, IBV_WR_SEND_WITH_IMM, lengths[i], 0, flags));
	}
}

static void write_and_read_all_sizes(struct end *end)
{
	static const uint32_t lengths[] = { 0, 1, 2, 3, 64, 512, 600, 605 };

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		CHECK(!run(end, IBV_WR_RDMA_WRITE, lengths[i], 2048, 0));
		CHECK(!run(end, IBV_WR_RDMA_WRITE_WITH_IMM, lengths[i], 2048, 0));
		CHECK(!run(end, IBV_WR_RDMA_READ, lengths[i], 2048, 0));
	}
}

static void do_atomics(struct end *end)
{
	CHECK(!run(end, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1024, 0));
	CHECK(!run(end, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1024, 0));
}

/* Without a receive, with the wrong PSN, or with a receive that is no good. */
static void send_in_vain(struct end *end)
{
	CHECK(run(end, IBV_WR_SEND, 64, 0, 0));
}

static void write_out_of_bounds(struct end *end)
{
	CHECK(run(end, IBV_WR_RDMA_WRITE, 64, BUFFER_SIZE, 0));
}

static void write_without_right(struct end *end)
{
	CHECK(run(end, IBV_WR_RDMA_WRITE, 64, 0, 0));
}

/* rxe cannot invalidate an ordinary region, but it has sent the packets by then. */
static void invalidate_one(struct end *end)
{
	run(end, IBV_WR_SEND_WITH_INV, 10, 0, 0);
}

static void invalidate_many(struct end *end)
{
	run(end, IBV_WR_SEND_WITH_INV, 300, 0, 0);
}

static void do_nothing(struct end *end)
{
	(void)end;
}

/* Datagrams to no QP. */
static void send_datagrams(struct end *end)
{
	struct ibv_qp_init_attr init = { .send_cq = end->cq,
					 .recv_cq = end->cq,
					 .cap = { .max_send_wr = 2, .max_send_sge = 1 },
					 .qp_type = IBV_QPT_UD };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = 7 };
	struct ibv_sge sge = { .addr = (uintptr_t)end->buffer,
			       .length = 41,
			       .lkey = end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htonl(0x05060708) },
			   *bad;
	struct ibv_qp_attr rc;
	struct ibv_qp_init_attr rc_init;
	struct ibv_qp *qp;

	CHECK(!ibv_query_qp(end->qp, &rc, IBV_QP_AV, &rc_init));
	CHECK(qp = ibv_create_qp(end->pd, &init));
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0xfffffe;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	CHECK(wr.wr.ud.ah = ibv_create_ah(end->pd, &rc.ah_attr));
	wr.wr.ud.remote_qpn = 0x123456;
	wr.wr.ud.remote_qkey = 0x00abcdef;
	for (int i = 0; i < 2; i++) {
		wr.opcode = i ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
		CHECK(!ibv_post_send(qp, &wr, &bad));
		CHECK(!complete(end));
	}
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_ah(wr.wr.ud.ah));
}

static const struct scenario scenarios[] = {
	{ .client = send_all_sizes, .receives = 16 },
	{ .client = write_and_read_all_sizes, .receives = 8 },
	{ .client = do_atomics },
	{ .client = send_in_vain },
	{ .client = send_in_vain, .receives_bad = 1 },
	{ .client = send_in_vain, .receives = 1, .psn_ahead = 3 },
	{ .client = write_out_of_bounds },
	{ .client = write_without_right, .closed = true },
	{ .client = invalidate_one, .receives = 1 },
	{ .client = invalidate_many, .receives = 1 },
	{ .client = send_datagrams },
	{ .client = do_nothing, .reject = true },
};

#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static struct sockaddr_storage address_of(int family, int host)
{
	struct sockaddr_storage address = { .ss_family = family };
	struct sockaddr_in *four = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;

	four->sin_port = htons(PORT); /* at the same place in both */
	if (family == AF_INET) {
		four->sin_addr.s_addr = htonl(0x0a000001 + host);
	} else {
		CHECK(inet_pton(AF_INET6, "fd00::", &six->sin6_addr) == 1);
		six->sin6_addr.s6_addr[15] = host + 1;
	}
	return address;
}

static void run_client(const struct scenario *scenario, int family)
{
	struct sockaddr_storage to = address_of(family, 1);
	struct rdma_conn_param param = { .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 1,
					 .rnr_retry_count = 1,
					 .private_data = "hello",
					 .private_data_len = 5 };
	struct end end = open_id();

	CHECK(!rdma_resolve_addr(end.id, NULL, (struct sockaddr *)&to, WAIT_MS));
	expect(&end, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(!rdma_resolve_route(end.id, WAIT_MS));
	expect(&end, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	open_qp(&end);
	move_to(&end, IBV_QPS_INIT, scenario);
	param.qp_num = end.qp->qp_num;
	CHECK(!rdma_connect(end.id, &param));
	if (scenario->reject) {
		expect(&end, RDMA_CM_EVENT_REJECTED, NULL);
		close_end(&end);
		return;
	}
	expect(&end, RDMA_CM_EVENT_CONNECT_RESPONSE, &end.peer);
	move_to(&end, IBV_QPS_RTR, scenario);
	move_to(&end, IBV_QPS_RTS, scenario);
	CHECK(!rdma_establish(end.id));
	scenario->client(&end);
	CHECK(!rdma_disconnect(end.id));
	expect(&end, RDMA_CM_EVENT_DISCONNECTED, NULL);
	close_end(&end);
}

/* The server. */

static void post_receives(struct end *end, unsigned count, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)end->buffer + BUFFER_SIZE -
				       RECEIVE_SIZE,
			       .length = RECEIVE_SIZE,
			       .lkey = lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	while (count--)
		CHECK(!ibv_post_recv(end->qp, &wr, &bad));
}

static void run_server(const struct scenario *scenario, struct end *listener)
{
	struct rdma_conn_param param = { .responder_resources = 1,
					 .initiator_depth = 1,
					 .rnr_retry_count = 1 };
	struct end end = { 0 };
	struct rdma_cm_event *event;
	struct token token;

	CHECK(!rdma_get_cm_event(listener->channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	end.id = event->id;
	rdma_ack_cm_event(event);
	CHECK(end.channel = rdma_create_event_channel());
	CHECK(!rdma_migrate_id(end.id, end.channel));
	if (scenario->reject) {
		CHECK(!rdma_reject(end.id, "no", 2));
		close_end(&end);
		return;
	}
	open_qp(&end);
	move_to(&end, IBV_QPS_INIT, scenario);
	post_receives(&end, scenario->receives, end.mr->lkey);
	post_receives(&end, scenario->receives_bad, end.mr->lkey ^ 0xff00);
	move_to(&end, IBV_QPS_RTR, scenario);
	move_to(&end, IBV_QPS_RTS, scenario);
	token = (struct token){ .addr = (uintptr_t)end.buffer, .key = end.mr->rkey };
	param.qp_num = end.qp->qp_num;
	param.private_data = &token;
	param.private_data_len = sizeof(token);
	CHECK(!rdma_accept(end.id, &param));
	expect(&end, RDMA_CM_EVENT_ESTABLISHED, NULL);
	expect(&end, RDMA_CM_EVENT_DISCONNECTED, NULL);
	CHECK(!rdma_disconnect(end.id));
	close_end(&end);
}

/* The recorder. */

/* Where the BTH is in an IP packet with one, or 0. */
static size_t find_bth(const uint8_t *ip, size_t length)
{
	bool four = ip[0] == 0x45 && ip[9] == IPPROTO_UDP;
	bool six = ip[0] >> 4 == 6 && ip[6] == IPPROTO_UDP;
	size_t udp = four ? 20 : 40;

	if ((!four && !six) || length < udp + 8 + 16 ||
	    ip[udp + 2] << 8 != (4791 & 0xff00) || ip[udp + 3] != (4791 & 0xff))
		return 0;
	return udp + 8;
}

/* What makes a packet of interest: version, opcode, flags and pad; the syndrome, and
 * for datagrams to QP 1 which kind of CM message it is. */
static uint64_t kind_of(const uint8_t *ip, const uint8_t *bth)
{
	uint64_t kind = (uint64_t)ip[0] >> 4 << 56 | (uint64_t)bth[0] << 48 |
			(uint64_t)bth[1] << 40 | (uint64_t)(bth[8] & 0x80) << 32;

	if (bth[0] >= 0x0d && bth[0] <= 0x12 && bth[0] != 0x0e)
		kind |= bth[12];
	if (bth[0] == 0x64 && bth[7] == 1)
		kind |= bth[12 + 8 + 16] << 8 | bth[12 + 8 + 17];
	return kind;
}

static void print_packet(FILE *file, const uint8_t *ip, size_t length,
			 const uint8_t *bth)
{
	fprintf(file, "{ \"IPv%u opcode 0x%02x\", \"", ip[0] >> 4, bth[0]);
	while (length--)
		fprintf(file, "%02x", *ip++);
	fprintf(file, "\" },\n");
}

static int open_recorder(void)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = if_nametoindex("rail0") };
	int size = 64 << 20, fd = socket(AF_PACKET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)));
	CHECK(!bind(fd, (struct sockaddr *)&at, sizeof(at)));
	return fd;
}

static void record(int fd)
{
	static uint64_t seen[512];
	unsigned count = 0;
	uint8_t ip[9000];
	ssize_t length;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/rxe.inc", getenv("VM_RESULTS"));
	CHECK(file = fopen(path, "w"));
	fprintf(file, "/* SPDX-License-Identifier: MIT */\n"
		      "/* Sent by the kernel's rxe, IP header to ICRC; made by "
		      "tests/vm/capture.sh. */\n");
	while ((length = recv(fd, ip, sizeof(ip), MSG_DONTWAIT)) > 0) {
		size_t bth = find_bth(ip, length);
		unsigned i = 0;

		if (!bth)
			continue;
		seen[count] = kind_of(ip, ip + bth);
		while (seen[i] != seen[count])
			i++;
		if (i < count)
			continue;
		CHECK(++count < sizeof(seen) / sizeof(seen[0]));
		print_packet(file, ip, length, ip + bth);
	}
	CHECK(!fclose(file));
	printf("%u packets\n", count);
}

/* The client waits until the server listens. */
static void meet(int host)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	if (host) {
		CHECK(!bind(fd, (struct sockaddr *)&at, sizeof(at)));
		CHECK(!listen(fd, 1));
		CHECK(accept(fd, NULL, NULL) >= 0);
		return;
	}
	CHECK(inet_pton(AF_INET, getenv("VM_PEER"), &at.sin_addr) == 1);
	while (connect(fd, (struct sockaddr *)&at, sizeof(at)))
		usleep(100000);
}

static void serve(void)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct end listener[2];

	for (int i = 0; i < 2; i++) {
		struct sockaddr_storage at = address_of(families[i], 1);

		listener[i] = open_id();
		CHECK(!rdma_bind_addr(listener[i].id, (struct sockaddr *)&at));
		CHECK(!rdma_listen(listener[i].id, 4));
	}
	meet(1);
	for (int i = 0; i < 2; i++) {
		for (unsigned k = 0; k < SCENARIOS; k++)
			run_server(&scenarios[k], &listener[i]);
		close_end(&listener[i]);
	}
}

int main(void)
{
	const char *host = getenv("VM_HOST");
	int fd;

	CHECK(host && getenv("VM_PEER") && getenv("VM_RESULTS"));
	if (host[0] == '1') {
		serve();
		return 0;
	}
	fd = open_recorder();
	meet(0);
	for (unsigned k = 0; k < SCENARIOS; k++)
		run_client(&scenarios[k], AF_INET);
	for (unsigned k = 0; k < SCENARIOS; k++)
		run_client(&scenarios[k], AF_INET6);
	record(fd);
	return 0;
}
