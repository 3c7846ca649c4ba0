/* SPDX-License-Identifier: MIT */
/*
 * Peers that do not keep to the rules, and calls that do not. Nothing a peer says does more
 * than end its own stream, with a sentence.
 */
#include "lib/stream_kit.h"

#include "vqp/post.h"
#include "vqp/qp.h"

static char buffer[8192];

/* End 0 posts what no stream would. Unsignalled, so that its own stream does not hear. */
static void post(uint32_t word, uint64_t bytes)
{
	struct snt_stream *stream = kit_end(0);
	struct snt_sge sge = { stream->stage_mem, stream->stage, bytes };
	struct snt_send_wr wr = { .wr_id = (uintptr_t)&stream->send_port,
				  .opcode = SNT_OP_WRITE_IMM,
				  .sge_count = bytes != 0,
				  .imm = word,
				  .sge = &sge,
				  .remote = &stream->remote,
				  .remote_addr = stream->remote.addr };

	assert_int_equal(snt__qp_post_send(stream->qp, &wr, 1), 1);
}

static uint32_t credit(uint32_t units, uint32_t receives)
{
	return snt__imm(SNT__IMM_CREDIT, (units & 0xffff) << 14 | (receives & 0x3fff));
}

static bool is_spray(const struct kit_way *way)
{
	return way->by_card && way->scheme == SNT_SCHEME_SPRAY;
}

/* A message of so many bytes, which need not be there. */
static void post_bytes(const struct kit_way *way, uint64_t bytes)
{
	if (is_spray(way))
		post(snt__imm(SNT__IMM_LENGTH, (uint32_t)bytes), 0);
	else
		post(0, bytes);
}

static void expect_fault(const char *phrase)
{
	kit_until(kit_is_over(1));
	assert_int_equal(kit_info(1).status, -EPROTO);
	if (!strstr(kit_info(1).text, phrase))
		fail_msg("\"%s\" does not say \"%s\"", kit_info(1).text, phrase);
	assert_error(snt_stream_write(kit_end(1), "x", 1), EPROTO, phrase);
	kit_close_after_lie();
}

static const struct kit_opts small = { .recv_size = { 4096, 4096 },
				       .send_size = 65536 };

static void has_read_too_much_on(const struct kit_way *way)
{
	kit_open(way, &small);
	kit_write_some(1, 0, 100);
	kit_until(kit_info(0).readable == 100);
	post(credit(101, 0), 0);
	expect_fault("read more than it was sent");
}

KIT_EACH_WAY(has_read_too_much)

static void has_replaced_too_much_on(const struct kit_way *way)
{
	kit_open(way, &small);
	kit_write_some(1, 0, 100);
	kit_until(kit_info(0).readable == 100);
	post(credit(0, 10), 0);
	expect_fault("replaced more receives");
}

KIT_EACH_WAY(has_replaced_too_much)

/* Counters only move on: back is far ahead. */
static void takes_credit_back_on(const struct kit_way *way)
{
	kit_open(way, &small);
	kit_transfer(1, 0, 20000, 2000, 2000);
	kit_until(!snt_stream_flush(kit_end(1)));
	post(credit(100, 0), 0);
	expect_fault("more");
}

KIT_EACH_WAY(takes_credit_back)

static void writes_too_much_on(const struct kit_way *way)
{
	kit_open(way, &small);
	kit_write_some(0, 0, 4000);
	kit_until(kit_info(1).readable == 4000);
	post_bytes(way, 97);
	kit_until(kit_is_over(1));
	/* What had arrived before can be read, and is what it was. */
	assert_int_equal(kit_read_some(1, 97, 0), 0);
	assert_true(snt_stream_read(kit_end(1), buffer, sizeof(buffer)) == 4000);
	kit_compare(0, 97, buffer + 97, 3903);
	assert_error(snt_stream_read(kit_end(1), buffer, 1), EPROTO, "room");
	expect_fault("more than there was room for");
}

KIT_EACH_WAY(writes_too_much)

static void ends_elsewhere_on(const struct kit_way *way)
{
	kit_open(way, &small);
	kit_transfer(0, 0, 100, 100, 100);
	post(snt__imm(SNT__IMM_END, 101), 0);
	expect_fault("another number of bytes");
}

KIT_EACH_WAY(ends_elsewhere)

static void ends_twice_on(const struct kit_way *way)
{
	kit_open(way, &small);
	assert_success(snt_stream_shutdown(kit_end(0)));
	kit_until(kit_info(1).peer_shut_down);
	post(snt__imm(SNT__IMM_END, 0), 0);
	expect_fault("shut down twice");
}

KIT_EACH_WAY(ends_twice)

static void writes_after_end_on(const struct kit_way *way)
{
	kit_open(way, &small);
	assert_success(snt_stream_shutdown(kit_end(0)));
	kit_until(kit_info(1).peer_shut_down);
	post_bytes(way, 10);
	expect_fault("after it had shut down");
}

KIT_EACH_WAY(writes_after_end)

static void says_nothing_on(const struct kit_way *way)
{
	kit_open(way, &small);
	post(0, 0);
	expect_fault("nothing");
}

KIT_EACH_WAY(says_nothing)

static void tells_length_in_vain_on(const struct kit_way *way)
{
	if (is_spray(way))
		return;
	kit_open(way, &small);
	post(snt__imm(SNT__IMM_LENGTH, 10), 10);
	expect_fault("length where the completion has one");
}

KIT_EACH_WAY(tells_length_in_vain)

/* Words of any kind, one after the other: nothing but an end comes of it. */
static void says_anything_on(const struct kit_way *way)
{
	/* Real devices take their time to give up a peer that has gone. */
	unsigned rounds = kit_real() ? 2 : 60;
	uint64_t random = 1;

	for (unsigned round = 0; round < rounds; round++) {
		kit_open(way, &small);
		kit_write_some(1, 0, 5000);
		for (unsigned i = 0; i < 6 && !snt__stream_has_failed(kit_end(1));
		     i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			if (snt_qp_num(kit_end(0)->qp) &&
			    !snt__stream_has_failed(kit_end(0)))
				post((uint32_t)(random >> 32), random >> 20 & 63);
			for (unsigned j = 0; j < 10; j++)
				world_step(&world, world_now(&world) + WORLD_MS);
		}
		kit_close_after_lie();
	}
}

KIT_EACH_WAY(says_anything)

/* A peer that uses every receive that it was granted, and more. */
static void floods_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 4096, 4096 }, .depth = 4 };

	kit_open(way, &opts);
	for (unsigned i = 0; i < 8; i++)
		post(credit(0, 0), 0);
	kit_until(kit_info(1).credits_received == 8);
	kit_close_after_lie();
}

KIT_EACH_WAY(floods)

/*
 * Offers
 */

static void offers(void **state)
{
	struct snt__greeting greeting = { .receives = 100,
					  .data_length = 3,
					  .data = "abc",
					  .ring = { .addr = 4096,
						    .length = 65536,
						    .access = SNT_ACCESS_REMOTE_WRITE,
						    .key_count = 2,
						    .key = { 1, 2 } } };
	struct snt__greeting copy;
	uint8_t packed[SNT_STREAM_OFFER_MAX], bad[SNT_STREAM_OFFER_MAX];
	ssize_t length = snt__greeting_pack(&greeting, packed, sizeof(packed));

	(void)state;
	assert_success(length);
	assert_success(snt__greeting_unpack(packed, (size_t)length, &copy));
	assert_memory_equal(&copy, &greeting, sizeof(copy));
	assert_error(snt__greeting_pack(&greeting, packed, 9), ENOSPC, "too few");
	/* Every byte counts: what is accepted says the same when it is packed again. */
	for (ssize_t i = 0; i < length; i++) {
		assert_true(snt__greeting_unpack(packed, (size_t)i, &copy) < 0);
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(bad, packed, (size_t)length);
			bad[i] ^= (uint8_t)(1u << bit);
			if (snt__greeting_unpack(bad, (size_t)length, &copy))
				continue;
			assert_int_equal(snt__greeting_pack(&copy, packed,
							    sizeof(packed)),
					 length);
			assert_memory_equal(packed, bad, (size_t)length);
			snt__greeting_pack(&greeting, packed, sizeof(packed));
		}
	}
	assert_error(snt__greeting_unpack("abcdefgh", 8, &copy), EBADMSG,
		     "not by a stream");
	packed[4] = 2;
	assert_error(snt__greeting_unpack(packed, (size_t)length, &copy),
		     EPROTONOSUPPORT, "version");
	greeting.ring.length = 65535;
	length = snt__greeting_pack(&greeting, packed, sizeof(packed));
	assert_error(snt__greeting_unpack(packed, (size_t)length, &copy), EBADMSG,
		     "ring");
	greeting.ring.length = 65536;
	greeting.receives = 33;
	length = snt__greeting_pack(&greeting, packed, sizeof(packed));
	assert_error(snt__greeting_unpack(packed, (size_t)length, &copy), EBADMSG,
		     "receives");
}

/*
 * Calls
 */

static void refusals(void **state)
{
	struct snt_stream_opts opts = { .size = sizeof(opts) };
	struct snt_stream_listener_opts listen = { .size = sizeof(listen),
						   .stream = &opts };
	struct snt_stream_listener *listener;
	struct snt_stream *stream = NULL;
	struct snt_loop *loop;
	struct iovec iov[2] = { { buffer, SIZE_MAX / 2 }, { buffer, SIZE_MAX / 2 } };

	(void)state;
	kit_open_world(NULL);
	loop = world.end[0].loop;
	assert_error(snt_stream_connect(loop, NULL, &opts, &stream), EINVAL, "host");
	opts.recv_size = SNT_STREAM_RING_MAX + 1;
	assert_error(snt_stream_connect(loop, NULL, &opts, &stream), EINVAL,
		     "recv_size");
	opts.recv_size = 0;
	opts.send_size = SNT_STREAM_RING_MAX + 1;
	assert_error(snt_stream_connect(loop, NULL, &opts, &stream), EINVAL,
		     "send_size");
	opts.send_size = 0;
	opts.depth = 4097;
	assert_error(snt_stream_connect(loop, NULL, &opts, &stream), EINVAL, "4097");
	opts.depth = 0;
	opts.data_length = 65;
	opts.data = buffer;
	assert_error(snt_stream_connect(loop, NULL, &opts, &stream), EINVAL,
		     "65 bytes");
	assert_error(snt_stream_listener_create(loop, NULL, &listen, &listener), EINVAL,
		     "65");
	assert_null(stream);
	assert_null(world_connected(&world));
	assert_error(snt_stream_write(kit_end(0), buffer, SIZE_MAX), EINVAL,
		     "too many");
	assert_error(snt_stream_read(kit_end(0), buffer, SIZE_MAX), EINVAL, "too many");
	assert_error(snt_stream_writev(kit_end(0), iov, 2), EINVAL, "too many");
	assert_error(snt_stream_readv(kit_end(0), iov, 2), EINVAL, "too many");
	assert_error(snt_stream_readv(kit_end(0), iov, -1), EINVAL, "-1");
	assert_error(snt_stream_writev(kit_end(0), iov, -1), EINVAL, "-1");
	assert_int_equal(snt_stream_write(kit_end(0), NULL, 0), 0);
	assert_int_equal(snt_stream_read(kit_end(0), NULL, 0), 0);
	assert_error(snt_stream_start(kit_end(0), buffer, 8), EALREADY, "begun");
	assert_success(snt_stream_destroy(NULL));
	assert_success(snt_stream_listener_destroy(NULL));
	/* Neither a loop nor its context is closed under its streams. */
	assert_error(snt_loop_destroy(loop), EBUSY, "the loop has");
	assert_error(snt_ctx_destroy(world.end[0].ctx), EBUSY, "the context has");
	kit_finish();
}

static void qp_refusals(void **state)
{
	struct snt_stream_opts opts = { .size = sizeof(opts) };
	struct snt_qp_opts qp_opts = { .size = sizeof(qp_opts) };
	struct snt_cq_opts cq_opts = { .size = sizeof(cq_opts) };
	struct snt_stream *stream;
	struct snt_cq *cq;
	struct snt_qp *qp;

	(void)state;
	kit_open_world(NULL);
	assert_success(snt_cq_create(world.end[0].ctx, &cq_opts, &cq));
	qp_opts.cq = cq;
	assert_success(snt_qp_create(world.end[0].ctx, &qp_opts, &qp));
	assert_error(snt_stream_create(qp, &opts, &stream), EINVAL, "ops");
	assert_success(snt_qp_destroy(qp));
	assert_success(snt_cq_destroy(cq));
	qp_opts.cq = world.end[0].cq;
	qp_opts.recv_depth = 33;
	assert_success(snt_qp_create(world.end[0].ctx, &qp_opts, &qp));
	assert_error(snt_stream_create(qp, &opts, &stream), EINVAL,
		     "33 receives for a peer");
	assert_success(snt_qp_destroy(qp));
	qp_opts.recv_depth = 34;
	qp_opts.send_depth = 8;
	assert_success(snt_qp_create(world.end[0].ctx, &qp_opts, &qp));
	assert_error(snt_stream_create(qp, &opts, &stream), EINVAL, "takes 8 sends");
	assert_success(snt_qp_destroy(qp));
	qp_opts.send_depth = 9;
	assert_success(snt_qp_create(world.end[0].ctx, &qp_opts, &qp));
	/* Not used: the depth is that of the QP. */
	opts.depth = 5;
	assert_success(snt_stream_create(qp, &opts, &stream));
	assert_error(snt_stream_start(stream, buffer, 8), ENOTCONN, "not connected");
	/* A stream that never began leaves a QP that can be used. */
	assert_success(snt_stream_destroy(stream));
	kit_until(!world.end[0].loop->conn_loop->lingering);
	assert_success(snt_stream_create(qp, &opts, &stream));
	assert_success(snt_stream_destroy(stream));
	kit_until(!world.end[0].loop->conn_loop->lingering);
	assert_success(snt_qp_destroy(qp));
	kit_close();
}

/* Each message is a write with an immediate, which iWARP does not have. */
static void no_immediates(void **state)
{
	struct ibv_device *device;

	(void)state;
	if (kit_real())
		return;
	kit_open_world(NULL);
	device = world.end[0].ctx->device[0]->context->device;
	device->transport_type = IBV_TRANSPORT_IWARP;
	world.to.host = "10.0.0.1";
	world.to.port = 1;
	world.to.size = sizeof(world.to);
	assert_error(snt_stream_connect(world.end[0].loop, &world.to,
					&world.end[0].opts, &world.end[0].stream),
		     EOPNOTSUPP, "iWARP");
	device->transport_type = IBV_TRANSPORT_IB;
	kit_close();
}

/* Data, and then a lie, before the end that accepts knows that it is connected. */
static bool lied;

static void lie_when_open(void *arg, struct snt_stream *stream, unsigned events)
{
	char bytes[100];

	(void)arg;
	if (!(events & SNT_STREAM_OPEN))
		return;
	kit_fill(0, 0, bytes, sizeof(bytes));
	assert_int_equal(snt_stream_write(stream, bytes, sizeof(bytes)), 100);
	post(credit(101, 0), 0);
	lied = true;
}

static unsigned told;

static void note(void *arg, struct snt_stream *stream, unsigned events)
{
	(void)arg;
	(void)stream;
	told |= events;
}

static void lies_at_once(void **state)
{
	(void)state;
	for (unsigned by_wait = 0; by_wait < 2; by_wait++) {
		kit_open_world(&small);
		told = 0;
		lied = false;
		world.end[0].opts.ready = lie_when_open;
		world.end[1].opts.ready = note;
		if (by_wait)
			world.listen.accepted = NULL;
		assert_null(world_connect(&world));
		kit_until(lied);
		/* All of it arrives before anybody looks. */
		if (!kit_real())
			snt__sim_run(world.sim, world_now(&world) + WORLD_MS);
		kit_until(kit_is_over(0));
		if (by_wait)
			kit_until(!snt_stream_listener_wait(world.listener, 0,
							    &world.end[1].stream));
		kit_until(kit_end(1) && kit_is_over(1));
		kit_until(told & SNT_STREAM_OVER);
		assert_int_equal(kit_read_some(1, 0, 200), 100);
		assert_error(snt_stream_read(kit_end(1), buffer, 1), EPROTO,
			     "read more than it was sent");
		kit_close_after_lie();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lies_at_once),
		cmocka_unit_test(has_read_too_much),
		cmocka_unit_test(has_replaced_too_much),
		cmocka_unit_test(takes_credit_back),
		cmocka_unit_test(writes_too_much),
		cmocka_unit_test(ends_elsewhere),
		cmocka_unit_test(ends_twice),
		cmocka_unit_test(writes_after_end),
		cmocka_unit_test(says_nothing),
		cmocka_unit_test(tells_length_in_vain),
		cmocka_unit_test(says_anything),
		cmocka_unit_test(floods),
		cmocka_unit_test(offers),
		cmocka_unit_test(refusals),
		cmocka_unit_test(qp_refusals),
		cmocka_unit_test(no_immediates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
