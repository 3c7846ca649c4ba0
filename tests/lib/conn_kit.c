/* SPDX-License-Identifier: MIT */
#include "conn_kit.h"

#include <poll.h>
#include <unistd.h>
#include <time.h>

#include "lib/loopback.h"

static bool is_open;

void kit_leave_failed(void)
{
	if (is_open)
		loopback_move();
	is_open = false;
}

const char *kit_address(unsigned end, unsigned device)
{
	return loopback_text(end * 16 + device);
}

static uint64_t monotonic_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void open_kit_end(struct kit_end *end, unsigned number, unsigned devices)
{
	char list[256] = "";
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .soft = SNT_SOFT_ONLY,
				     .soft_addresses = list };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts),
				       .ops = SNT_CQ_OPS_EVENTS };

	for (unsigned i = 0; i < devices; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			 i ? "," : "", kit_address(number, i));
	assert_success(snt_ctx_create(&opts, &end->ctx));
	assert_success(snt_loop_create(end->ctx, NULL, &end->loop));
	cq_opts.loop = end->loop;
	assert_success(snt_cq_create(end->ctx, &cq_opts, &end->cq));
	end->bytes = calloc(1, KIT_BYTES);
	assert_non_null(end->bytes);
	assert_success(
		snt_mem_register(end->ctx, end->bytes, KIT_BYTES,
				 SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE,
				 &end->mem));
	assert_success(snt_mem_token(end->mem, &end->token));
	end->address = kit_address(number, 0);
}

static void on_kit_event(void *arg, struct snt_conn *conn, enum snt_conn_event event)
{
	struct kit_end *end = arg;

	assert_ptr_equal(conn, end->conn);
	end->events[event]++;
}

/* An earlier attempt failed, at one end at least, and the end that connects tries again. */
static void replace_conn(struct kit *kit, struct snt_conn *conn)
{
	struct kit_end *end = &kit->end[1];

	if (end->conn) {
		assert_true(kit->connect.retries > 0);
		assert_success(snt_conn_destroy(end->conn));
		memset(end->events, 0, sizeof(end->events));
	}
	end->conn = conn;
}

static void on_kit_request(void *arg, struct snt_listener *listener,
			   struct snt_conn *conn)
{
	struct kit *kit = arg;
	int ret;

	assert_ptr_equal(listener, kit->listener);
	kit->requests++;
	if (kit->reject) {
		assert_success(snt_conn_reject(conn, "not today", "why", 3));
		return;
	}
	if (kit->second)
		kit->extra[1] = conn;
	else
		replace_conn(kit, conn);
	ret = snt_conn_accept(conn, &kit->accept);
	if (ret == -ENOTCONN && kit->may_leave) {
		kit->end[1].conn = NULL;
		assert_success(snt_conn_reject(conn, NULL, NULL, 0));
		return;
	}
	assert_success(ret);
}

void kit_open(struct kit *kit, enum snt_carrier carrier, unsigned devices)
{
	kit_leave_failed();
	is_open = true;
	memset(kit, 0, sizeof(*kit));
	for (unsigned i = 0; i < 2; i++) {
		open_kit_end(&kit->end[i], i, devices);
		kit->qp[i] = (struct snt_qp_opts){ .size = sizeof(kit->qp[i]),
						   .cq = kit->end[i].cq };
	}
	kit->to = kit->at = (struct snt_endpoint){ .size = sizeof(kit->to),
						   .host = kit->end[1].address,
						   .carrier = carrier };
	kit->connect = (struct snt_conn_opts){ .size = sizeof(kit->connect),
					       .qp = &kit->qp[0],
					       .event = on_kit_event,
					       .arg = &kit->end[0],
					       .data = "hello",
					       .data_length = 5 };
	kit->accept = (struct snt_conn_opts){ .size = sizeof(kit->accept),
					      .qp = &kit->qp[1],
					      .event = on_kit_event,
					      .arg = &kit->end[1],
					      .data = "welcome",
					      .data_length = 7 };
	kit->listen = (struct snt_listener_opts){ .size = sizeof(kit->listen),
						  .requested = on_kit_request,
						  .arg = kit };
}

void kit_listen(struct kit *kit)
{
	assert_success(snt_listener_create(kit->end[1].loop, &kit->at, &kit->listen,
					   &kit->listener));
	assert_int_not_equal(snt_listener_port(kit->listener), 0);
	kit->to.port = snt_listener_port(kit->listener);
}

void kit_connect(struct kit *kit)
{
	assert_success(snt_conn_connect(kit->end[0].loop, &kit->to, &kit->connect,
					&kit->end[0].conn));
}

void kit_turn(struct kit *kit)
{
	struct pollfd fds[2];

	for (unsigned i = 0; i < 2; i++)
		fds[i] = (struct pollfd){ .fd = snt_loop_fd(kit->end[i].loop),
					  .events = POLLIN };
	poll(fds, 2, 10);
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_loop_dispatch(kit->end[i].loop, 0));
}

void kit_until(struct kit *kit, bool (*done)(struct kit *kit))
{
	uint64_t begin = monotonic_now();

	while (!done(kit)) {
		kit_turn(kit);
		if (monotonic_now() - begin < KIT_WAIT_NS)
			continue;
		for (unsigned i = 0; i < 2; i++) {
			char text[4096];

			if (!kit->end[i].conn)
				continue;
			snt_conn_explain(kit->end[i].conn, text, sizeof(text));
			print_error("end %u:\n%s", i, text);
		}
		fail_msg("it takes too long");
	}
}

bool kit_both_up(struct kit *kit)
{
	if (kit->end[0].events[SNT_CONN_OVER])
		fail_msg("the end that connects: %s", kit_text(kit, 0));
	return kit->end[0].events[SNT_CONN_CONNECTED] &&
	       kit->end[1].events[SNT_CONN_CONNECTED];
}

bool kit_both_over(struct kit *kit)
{
	return kit->end[0].events[SNT_CONN_OVER] && kit->end[1].events[SNT_CONN_OVER];
}

void kit_check_data(struct kit *kit, unsigned from)
{
	struct kit_end *a = &kit->end[from], *b = &kit->end[!from];
	struct snt_op recv = { 0 }, send = { 0 };
	struct snt_sge sge = { a->mem, a->bytes, KIT_BYTES };

	for (unsigned i = 0; i < KIT_BYTES; i++)
		a->bytes[i] = (uint8_t)(i * 7 + from);
	assert_success(snt_op_recv(snt_conn_qp(b->conn), &recv, NULL));
	assert_success(
		snt_op_post(snt_conn_qp(a->conn), &send,
			    &(struct snt_send_wr){ .opcode = SNT_OP_WRITE_IMM,
						   .imm = 42,
						   .sge = &sge,
						   .sge_count = 1,
						   .remote = &b->token,
						   .remote_addr = b->token.addr }));
	while (snt_op_pending(&recv) || snt_op_pending(&send))
		kit_turn(kit);
	assert_int_equal(send.result, 0);
	assert_int_equal(recv.result, 0);
	assert_int_equal(recv.wc.imm, 42);
	assert_memory_equal(a->bytes, b->bytes, KIT_BYTES);
}

void kit_disconnect(struct kit *kit)
{
	assert_success(snt_conn_disconnect(kit->end[0].conn, 0));
	while (!kit->end[1].events[SNT_CONN_PEER_DONE])
		kit_turn(kit);
	assert_success(snt_conn_disconnect(kit->end[1].conn, 0));
	kit_until(kit, kit_both_over);
	assert_int_equal(kit_status(kit, 0), 0);
	assert_int_equal(kit_status(kit, 1), 0);
}

void kit_destroy_conns(struct kit *kit)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_success(snt_conn_destroy(kit->end[i].conn));
		kit->end[i].conn = NULL;
		memset(kit->end[i].events, 0, sizeof(kit->end[i].events));
	}
}

void kit_close(struct kit *kit)
{
	kit_destroy_conns(kit);
	assert_success(snt_listener_destroy(kit->listener));
	for (unsigned i = 0; i < 2; i++) {
		struct kit_end *end = &kit->end[i];

		assert_success(snt_cq_destroy(end->cq));
		assert_success(snt_mem_release(end->mem));
		assert_success(snt_loop_destroy(end->loop));
		assert_success(snt_ctx_destroy(end->ctx));
		free(end->bytes);
	}
	is_open = false;
}

int kit_status(struct kit *kit, unsigned end)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	assert_success(snt_conn_query(kit->end[end].conn, &info));
	return info.status;
}

const char *kit_text(struct kit *kit, unsigned end)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	assert_success(snt_conn_query(kit->end[end].conn, &info));
	return info.text;
}
