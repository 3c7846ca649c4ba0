/* SPDX-License-Identifier: MIT */

/*
 * A rank whose plugin lies. The test takes its place: it speaks the protocol of the plugin's
 * sending end, with a queue pair of its own.
 */

#include <arpa/inet.h>
#include <endian.h>
#include <sched.h>
#include <sennit/sennit.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/test.h"
#include "net_kit.h"
#include "wire.h"

#define VERSION	     1
#define RECEIVE_SIZE 1000
#define MEMORY_SIZE  (256 * 1024)

struct grant {
	uint64_t addr, size, token_length;
	uint8_t token[SNT_TOKEN_PACKED_MAX];
};

/* What the lying rank has. */
static struct {
	struct snt_ctx *ctx;
	struct snt_cq *cq;
	struct snt_qp *qp;
	struct snt_mem *mem;
	int fd;
	struct grant grant;
	char data[MEMORY_SIZE];
} liar;

static char handle[NCCL_HANDLE_BYTES];
static char memory[MEMORY_SIZE];

static time_t limit;

static bool late(void)
{
	return time(NULL) >= limit;
}

static void say(uint16_t kind, const void *body, uint16_t length)
{
	const struct handle_head *head = (struct handle_head *)handle;
	struct frame_head frame = { .nonce = head->nonce,
				    .version = htonl(VERSION),
				    .kind = htons(kind),
				    .length = htons(length) };

	memcpy(frame.magic, head->magic, sizeof(frame.magic));
	assert_int_equal(send(liar.fd, &frame, sizeof(frame), MSG_NOSIGNAL),
			 sizeof(frame));
	if (length)
		assert_int_equal(send(liar.fd, body, length, MSG_NOSIGNAL), length);
}

static void make_qp(void)
{
	struct snt_cq_opts cq_opts = SNT_INIT(cq_opts, .depth = 1024);
	struct snt_qp_opts opts = SNT_INIT(opts, .scheme = SNT_SCHEME_DQPLB);

	assert_int_equal(snt_ctx_create(NULL, &liar.ctx), 0);
	assert_int_equal(snt_qp_create_with_cq(liar.ctx, &cq_opts, &opts, &liar.cq,
					       &liar.qp),
			 0);
	assert_int_equal(snt_mem_register(liar.ctx, &liar, sizeof(liar),
					  SNT_ACCESS_LOCAL_WRITE, &liar.mem),
			 0);
}

/* Connects to the plugin's listener; returns the plugin's comm. */
static void *connect_liar(void)
{
	const struct handle_head *head = (struct handle_head *)handle;
	char card[SNT_CARD_PACKED_MAX];
	struct frame_head answer;
	void *listener, *comm = NULL;
	ssize_t length, got = 0;
	struct snt_sge sge = { liar.mem, &liar.grant, sizeof(liar.grant) };
	const struct snt_recv_wr recv_wr = { .sge = &sge, .sge_count = 1 };

	assert_int_equal(net_listen(0, handle, &listener), 0);
	liar.fd = socket(head->address.any.sa_family, SOCK_STREAM, 0);
	assert_int_equal(connect(liar.fd, &head->address.any, sizeof(head->address.v4)),
			 0);
	length = snt_qp_card_pack(liar.qp, card, sizeof(card));
	assert_true(length > 0);
	say(KIND_CARD, card, length);
	while (got < (ssize_t)sizeof(answer)) {
		assert_int_equal(net_accept(listener, &comm), 0);
		got = recv(liar.fd, &answer, sizeof(answer), MSG_PEEK | MSG_DONTWAIT);
		assert_false(late());
	}
	assert_int_equal(recv(liar.fd, &answer, sizeof(answer), MSG_WAITALL),
			 sizeof(answer));
	assert_int_equal(ntohs(answer.kind), KIND_CARD);
	length = ntohs(answer.length);
	assert_int_equal(recv(liar.fd, card, length, MSG_WAITALL), length);
	assert_int_equal(snt_qp_connect_packed(liar.qp, card, length), 0);
	assert_int_equal(snt_qp_post_recv(liar.qp, &recv_wr, 1), 1);
	say(KIND_READY, NULL, 0);
	while (!comm) {
		assert_int_equal(net_accept(listener, &comm), 0);
		assert_false(late());
	}
	net_close_listen(listener);
	return comm;
}

static void poll_until(uint8_t opcode)
{
	struct snt_wc wc;

	for (;;) {
		const int count = snt_cq_poll(liar.cq, &wc, 1);

		assert_true(count >= 0);
		assert_false(late());
		if (count && wc.opcode == opcode)
			return;
		sched_yield();
	}
}

/* Writes where the grant says, but as much as it likes. */
static void send_bytes(size_t size)
{
	struct snt_token token;
	struct snt_sge sge = { liar.mem, liar.data, size };
	struct snt_send_wr wr = { .opcode = SNT_OP_WRITE_IMM,
				  .flags = SNT_SEND_SIGNALED,
				  .sge = &sge,
				  .sge_count = 1,
				  .remote = &token };

	poll_until(SNT_OP_RECV);
	assert_int_equal(be64toh(liar.grant.size), RECEIVE_SIZE);
	assert_int_equal(snt_token_unpack(liar.grant.token,
					  be64toh(liar.grant.token_length), &token),
			 0);
	wr.remote_addr = be64toh(liar.grant.addr);
	assert_int_equal(snt_qp_post_send(liar.qp, &wr, 1), 1);
}

/* What the plugin says about a receive of RECEIVE_SIZE bytes in which `size` arrive. */
static int receive(size_t size, int *size_out)
{
	void *comm, *request, *registered;
	int ret, done = 0;

	limit = time(NULL) + patience_s(20);
	make_qp();
	comm = connect_liar();
	assert_int_equal(net_reg(comm, memory, sizeof(memory), &registered), 0);
	assert_int_equal(net_irecv(comm, memory, RECEIVE_SIZE, registered, &request),
			 0);
	send_bytes(size);
	for (ret = 0; !ret && !done;) {
		ret = net_test(request, &done, size_out);
		assert_false(late());
	}
	assert_int_equal(snt_qp_close(liar.qp, 0), 0);
	poll_until(SNT_OP_CLOSED);
	assert_int_equal(net_close_recv(comm), 0);
	assert_int_equal(net_dereg(comm, registered), 0);
	assert_int_equal(snt_qp_destroy(liar.qp), 0);
	assert_int_equal(snt_cq_destroy(liar.cq), 0);
	assert_int_equal(snt_mem_release(liar.mem), 0);
	assert_int_equal(snt_ctx_destroy(liar.ctx), 0);
	close(liar.fd);
	return ret;
}

static void as_many_bytes_as_the_receive_has_are_received(void **state)
{
	int size = -1;

	(void)state;
	assert_int_equal(receive(RECEIVE_SIZE, &size), 0);
	assert_int_equal(size, RECEIVE_SIZE);
}

static void more_bytes_than_the_receive_has_are_an_error(void **state)
{
	static const size_t sizes[] = { RECEIVE_SIZE + 1, MEMORY_SIZE };
	int size;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		char text[128];

		size = -1;
		assert_int_equal(receive(sizes[i], &size), NCCL_REMOTE_ERROR);
		assert_int_equal(size, -1);
		snprintf(text, sizeof(text), "%zu bytes in a receive of %d bytes",
			 sizes[i], RECEIVE_SIZE);
		assert_non_null(strstr(net_last_warning(), text));
	}
}

static int load(void **state)
{
	(void)state;
	net_load(11);
	return net_init();
}

static int unload(void **state)
{
	(void)state;
	net_finalize();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_many_bytes_as_the_receive_has_are_received),
		cmocka_unit_test(more_bytes_than_the_receive_has_are_an_error),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
