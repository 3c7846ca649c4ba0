/* SPDX-License-Identifier: MIT */
/* Bytes on their way: whole, in order, and no more of them than there is room for. */
#include "lib/stream_kit.h"

#include "dev/soft/core.h"

static void connect_accept_on(const struct kit_way *way)
{
	struct snt_conn_info info = { .size = sizeof(info) };

	kit_open(way, NULL);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kit_info(i).lanes, way->lanes);
		assert_int_equal(kit_info(i).peer_size, 1 << 20);
		assert_true(!snt_stream_conn(kit_end(i)) == way->by_card);
		if (way->by_card)
			continue;
		assert_success(snt_conn_query(snt_stream_conn(kit_end(i)), &info));
		assert_true(strlen(info.peer_address) > 0);
	}
	kit_finish();
}

KIT_EACH_WAY(connect_accept)

/* One message, exactly as long as it was; then five there and back. */
static void send_recv_single_on(const struct kit_way *way)
{
	char text[32], answer[32];

	kit_open(way, NULL);
	assert_int_equal(kit_write_some(0, 0, 1500), 1500);
	kit_until(kit_info(1).readable);
	assert_int_equal(kit_info(1).readable, 1500);
	assert_int_equal(kit_read_some(1, 0, 4000), 1500);
	for (int i = 0; i < 5; i++) {
		snprintf(text, sizeof(text), "message %d", i);
		assert_int_equal(snt_stream_write(kit_end(0), text, sizeof(text)),
				 sizeof(text));
		kit_until(kit_info(1).readable == sizeof(text));
		assert_int_equal(snt_stream_read(kit_end(1), answer, sizeof(answer)),
				 sizeof(answer));
		assert_int_equal(snt_stream_write(kit_end(1), answer, sizeof(answer)),
				 sizeof(answer));
		memset(answer, 0, sizeof(answer));
		kit_until(kit_info(0).readable == sizeof(text));
		snt_stream_read(kit_end(0), answer, sizeof(answer));
		assert_string_equal(answer, text);
	}
	kit_finish();
}

KIT_EACH_WAY(send_recv_single)

static void large_transfer_on(const struct kit_way *way)
{
	kit_open(way, NULL);
	kit_transfer(0, 0, 3 << 20, 1 << 20, 1 << 20);
	kit_transfer(1, 0, 32768, 32768, 32768);
	kit_finish();
}

KIT_EACH_WAY(large_transfer)

static void pipelined_transfer_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 65536, 65536 }, .send_size = 65536 };

	kit_open(way, &opts);
	kit_transfer(0, 0, 512 * 1000, 1000, 65536);
	kit_finish();
}

KIT_EACH_WAY(pipelined_transfer)

static void vectored_write_on(const struct kit_way *way)
{
	const struct iovec out[] = {
		{ "one, ", 5 }, { NULL, 0 }, { "two, ", 5 }, { "three", 6 }
	};
	char a[7], b[32];
	struct iovec in[] = { { a, sizeof(a) }, { b, sizeof(b) } };

	kit_open(way, NULL);
	assert_int_equal(snt_stream_writev(kit_end(0), out, 4), 16);
	kit_until(kit_info(1).readable);
	/* Accepted as one, sent as one. */
	assert_int_equal(kit_info(0).messages_sent, 1);
	assert_int_equal(snt_stream_readv(kit_end(1), in, 2), 16);
	assert_memory_equal(a, "one, tw", 7);
	assert_string_equal(b, "o, three");
	kit_finish();
}

KIT_EACH_WAY(vectored_write)

/* The peer does not read: the writer takes what the two rings hold, and then
 * -EAGAIN. */
static void backpressure_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 4096, 8192 }, .send_size = 2048 };
	uint64_t written = 0, got = 0;

	kit_open(way, &opts);
	for (int still = 0; still < 3;) {
		uint64_t part = kit_write_some(0, written, 700);
		uint64_t before = kit_info(0).unsent;

		written += part;
		still = part ? 0 : still + 1;
		kit_until(snt__stream_state(kit_end(0)) & SNT_STREAM_WRITABLE ||
			  (kit_info(0).stalls && kit_info(0).unsent == before));
	}
	assert_true(written <= 8192 + 2048);
	assert_true(written > 8192 - 8192 / 4);
	assert_int_equal(snt_stream_write(kit_end(0), "x", 1), -EAGAIN);
	/* Recovery, and nothing was overwritten meanwhile. */
	while (got < written) {
		kit_until(kit_info(1).readable);
		got += kit_read_some(1, got, 4096);
	}
	kit_until(snt__stream_state(kit_end(0)) & SNT_STREAM_WRITABLE);
	kit_transfer(0, written, 20000, 3000, 3000);
	kit_finish();
}

KIT_EACH_WAY(backpressure)

/* 4000 small writes without the loop: never an error. */
static void send_never_errors_under_backpressure_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 65536, 65536 },
				 .send_size = 65536,
				 .depth = 512 };
	uint64_t written = 0;
	unsigned refused = 0;

	kit_open(way, &opts);
	for (int i = 0; i < 4000; i++) {
		size_t part = kit_write_some(0, written, 64);

		written += part;
		refused += !part;
	}
	assert_true(refused > 0);
	assert_int_equal(written, 65536);
	for (uint64_t got = 0; got < written;) {
		kit_until(kit_info(1).readable);
		got += kit_read_some(1, got, 65536);
	}
	kit_finish();
}

KIT_EACH_WAY(send_never_errors_under_backpressure)

/* Arriving does not depend on the peer's reading. */
static void flush_on(const struct kit_way *way)
{
	kit_open(way, NULL);
	assert_success(snt_stream_flush(kit_end(0)));
	kit_write_some(0, 0, 10000);
	assert_int_equal(snt_stream_flush(kit_end(0)), -EAGAIN);
	kit_until(!snt_stream_flush(kit_end(0)));
	assert_int_equal(kit_info(0).writable, 1 << 20);
	kit_until(kit_info(1).readable == 10000);
	kit_read_some(1, 0, 10000);
	kit_finish();
}

KIT_EACH_WAY(flush)

/* Small ones go together, unless they are flushed. */
static void coalescing_on(const struct kit_way *way)
{
	kit_open(way, NULL);
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(kit_write_some(0, i * 20, 20), 20);
	kit_until(kit_info(1).readable == 10000);
	assert_true(kit_info(0).messages_sent < 20);
	kit_read_some(1, 0, 10000);
	kit_finish();
}

KIT_EACH_WAY(coalescing)

/* Every size meets the end of the ring at every place, with rings of different
 * sizes. */
static void wrap_around_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 256, 1024 }, .send_size = 512 };
	uint64_t position[2] = { 0, 0 };

	kit_open(way, &opts);
	for (uint32_t i = 1; i < 300; i++) {
		unsigned from = i % 2;
		uint64_t length = 1 + i * 7919 % 777;

		kit_transfer(from, position[from], length, 1 + i * 31 % 600,
			     1 + i * 17 % 400);
		position[from] += length;
	}
	kit_finish();
}

KIT_EACH_WAY(wrap_around)

/* More than half of the ring, more than all of it. */
static void longer_than_ring_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 4096, 4096 }, .send_size = 65536 };

	kit_open(way, &opts);
	kit_transfer(0, 0, 3000, 3000, 8192);
	kit_transfer(0, 3000, 3500, 3500, 8192);
	kit_transfer(0, 6500, 60000, 60000, 100);
	kit_finish();
}

KIT_EACH_WAY(longer_than_ring)

/* Bytes that are looked at stay, whatever the sender does. */
static void peeked_bytes_stay_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 1024, 1024 }, .send_size = 4096 };
	struct iovec iov[2];
	uint64_t written = 0;

	kit_open(way, &opts);
	written += kit_write_some(0, written, 300);
	kit_until(kit_info(1).readable == 300);
	for (int i = 0; i < 50; i++) {
		written += kit_write_some(0, written, 200);
		world_step(&world, world_now(&world) + WORLD_MS);
	}
	kit_until(kit_info(0).stalls);
	assert_true(snt_stream_peek(kit_end(1), 0, iov) >= 300);
	kit_compare(0, 0, iov[0].iov_base, 300);
	assert_error(snt_stream_consume(kit_end(1), 5000), EINVAL, "more than");
	assert_success(snt_stream_consume(kit_end(1), 300));
	for (uint64_t got = 300; got < written;) {
		ssize_t ret = snt_stream_peek(kit_end(1), 0, iov);

		if (ret == -EAGAIN) {
			kit_until(kit_info(1).readable);
			continue;
		}
		kit_compare(0, got, iov[0].iov_base, iov[0].iov_len);
		kit_compare(0, got + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
		assert_success(snt_stream_consume(kit_end(1), (size_t)ret));
		got += (uint64_t)ret;
	}
	kit_finish();
}

KIT_EACH_WAY(peeked_bytes_stay)

/* A reader that needs many bytes at once gets them, also when its ring is nearly
 * full. */
static void peek_waits_for_enough_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 1024, 1024 }, .send_size = 4096 };
	struct iovec iov[2];
	uint64_t written = 0, got = 0;

	kit_open(way, &opts);
	assert_error(snt_stream_peek(kit_end(1), 513, iov), EINVAL, "cannot wait for");
	for (unsigned i = 0; i < 200; i++) {
		size_t least = 1 + i * 37 % 512;

		written += kit_write_some(0, written, 700);
		if (snt_stream_peek(kit_end(1), least, iov) == -EAGAIN)
			kit_until(snt__stream_state(kit_end(1)) & SNT_STREAM_READABLE);
		assert_true(snt_stream_peek(kit_end(1), least, iov) >= (ssize_t)least);
		kit_compare(0, got, iov[0].iov_base,
			    least < iov[0].iov_len ? least : iov[0].iov_len);
		assert_success(snt_stream_consume(kit_end(1), least));
		got += least;
	}
	while (got < written) {
		kit_until(kit_info(1).readable);
		got += kit_read_some(1, got, 4096);
	}
	kit_finish();
}

KIT_EACH_WAY(peek_waits_for_enough)

/* More messages unread than there are receives: 64 bytes each, a thousand of them. */
static void many_unread_messages_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 1 << 20, 1 << 20 }, .depth = 4 };
	uint64_t written = 0;

	kit_open(way, &opts);
	for (int i = 0; i < 1000; i++) {
		written += kit_write_some(0, written, 64);
		snt_stream_flush(kit_end(0));
		world_step(&world, world_now(&world) + WORLD_MS);
	}
	kit_until(kit_info(1).readable == written);
	assert_true(kit_info(1).messages_received > 100);
	assert_int_equal(kit_read_some(1, 0, 1 << 20), written);
	kit_finish();
}

KIT_EACH_WAY(many_unread_messages)

/* Both ends write until nothing goes any more; then both read. */
static void both_write_blocked_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 2048, 2048 }, .send_size = 1024 };
	uint64_t written[2] = { 0, 0 }, got[2] = { 0, 0 };

	kit_open(way, &opts);
	for (int i = 0; i < 400; i++)
		for (unsigned end = 0; end < 2; end++) {
			written[end] += kit_write_some(end, written[end], 64);
			world_step(&world, world_now(&world) + WORLD_MS / 100);
		}
	for (unsigned end = 0; end < 2; end++) {
		assert_int_equal(kit_write_some(end, written[end], 64), 0);
		assert_true(written[end] > 2048);
	}
	while (got[0] < written[1] || got[1] < written[0]) {
		for (unsigned end = 0; end < 2; end++)
			got[end] += kit_read_some(end, got[end], 333);
		world_step(&world, world_now(&world) + WORLD_MS);
	}
	kit_transfer(0, written[0], 5000, 1000, 1000);
	kit_transfer(1, written[1], 5000, 1000, 1000);
	kit_finish();
}

KIT_EACH_WAY(both_write_blocked)

static void depths_on(const struct kit_way *way)
{
	static const uint32_t depths[] = { 1, 2, 3, 7, 64, 500, 4000 };

	for (unsigned i = 0; i < ARRAY_SIZE(depths); i++) {
		struct kit_opts opts = { .recv_size = { 16384, 16384 },
					 .send_size = 16384,
					 .depth = depths[i] };

		kit_open(way, &opts);
		kit_transfer(0, 0, 100000, 100, 16384);
		kit_transfer(1, 0, 30000, 3000, 777);
		kit_finish();
	}
}

KIT_EACH_WAY(depths)

/*
 * Registered memory
 */

#define PIECES 5

static unsigned released_count;
static struct snt_stream_send pieces[PIECES];

static void piece_released(struct snt_stream_send *send)
{
	assert_ptr_equal(send, &pieces[released_count]);
	assert_int_equal(send->result, 0);
	released_count++;
}

static void registered_on(const struct kit_way *way)
{
	struct kit_opts opts = { .recv_size = { 8192, 8192 }, .send_size = 1024 };
	const uint64_t size = 20000;
	uint8_t *memory = malloc(PIECES * size);
	struct snt_mem *mem;
	uint64_t position = 0, got = 0;

	kit_open(way, &opts);
	released_count = 0;
	assert_success(
		snt_mem_register(world.end[0].ctx, memory, PIECES * size, 0, &mem));
	/* In order with bytes that are copied. */
	for (unsigned i = 0; i < PIECES; i++) {
		position += kit_write_some(0, position, 100);
		kit_fill(0, position, memory + i * size, size);
		pieces[i] = (struct snt_stream_send){ .mem = mem,
						      .addr = memory + i * size,
						      .length = size,
						      .released = piece_released };
		assert_success(snt_stream_write_registered(kit_end(0), &pieces[i]));
		position += size;
	}
	assert_int_equal(released_count, 0);
	while (got < position) {
		kit_until(kit_info(1).readable);
		got += kit_read_some(1, got, 1234);
	}
	kit_until(released_count == PIECES);
	pieces[0].addr = memory + PIECES * size;
	assert_error(snt_stream_write_registered(kit_end(0), &pieces[0]), ERANGE,
		     "outside");
	pieces[0].length = 0;
	assert_error(snt_stream_write_registered(kit_end(0), &pieces[0]), EINVAL,
		     "length");
	assert_success(snt_mem_release(mem));
	free(memory);
	kit_finish();
}

KIT_EACH_WAY(registered)

/*
 * As a FILE
 */

static void file_on(const struct kit_way *way)
{
	char line[64];
	FILE *out, *in;

	/* Its calls wait, in real time. */
	if (!kit_real())
		return;
	kit_open(way, NULL);
	assert_error(snt_stream_file(kit_end(0), "x", &out), EINVAL,
		     "\"x\" is not a mode");
	assert_success(snt_stream_file(kit_end(0), "w", &out));
	assert_success(snt_stream_file(kit_end(1), "r", &in));
	for (int i = 0; i < 1000; i++)
		assert_true(fprintf(out, "line %d\n", i) > 0);
	assert_int_equal(fclose(out), 0);
	snt_stream_shutdown(kit_end(0));
	for (int i = 0; i < 1000; i++) {
		assert_non_null(fgets(line, sizeof(line), in));
		assert_int_equal(atoi(line + 5), i);
	}
	assert_null(fgets(line, sizeof(line), in));
	assert_true(feof(in));
	fclose(in);
	kit_close();
}

KIT_EACH_WAY(file)

static unsigned armed_cqs(unsigned end)
{
	return world.end[end].device[0]->core->armed_count;
}

/* A wait looks first: if what it waits for has come, nothing is armed. */
static void wait_looks_first(void **state)
{
	struct kit_opts opts = { .send_size = 4096 };
	unsigned before;

	(void)state;
	if (kit_real())
		return;
	kit_open(&kit_ways[0], &opts);
	before = armed_cqs(1);
	assert_int_equal(kit_write_some(0, 0, 100), 100);
	snt__sim_run(world.sim, world_now(&world) + WORLD_MS);
	assert_int_equal(armed_cqs(1), before - 1);
	assert_int_equal(kit_info(1).readable, 0);
	assert_int_equal(snt_stream_wait(kit_end(1), SNT_STREAM_READABLE, -1),
			 SNT_STREAM_READABLE);
	assert_int_equal(armed_cqs(1), before - 1);
	assert_int_equal(kit_read_some(1, 0, 100), 100);
	kit_finish();
}

/* The last packet of a message has the immediate, and is still no longer than the
 * others: else it could not be sent along with them. */
static void chunks_end_with_a_short_packet(void **state)
{
	struct kit_opts opts = { .recv_size = { 1 << 20, 1 << 16 },
				 .send_size = 1 << 20 };

	(void)state;
	kit_open(&kit_ways[0], &opts);
	/* To the smaller ring it is a packet or two. */
	assert_int_equal(kit_info(0).chunk, 1 << 13);
	assert_int_equal(kit_info(1).chunk, 62 * 4096 + 64);
	kit_transfer(1, 0, 3 << 20, 1 << 20, 1 << 20);
	kit_finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_accept),
		cmocka_unit_test(send_recv_single),
		cmocka_unit_test(large_transfer),
		cmocka_unit_test(pipelined_transfer),
		cmocka_unit_test(vectored_write),
		cmocka_unit_test(backpressure),
		cmocka_unit_test(send_never_errors_under_backpressure),
		cmocka_unit_test(flush),
		cmocka_unit_test(coalescing),
		cmocka_unit_test(wrap_around),
		cmocka_unit_test(longer_than_ring),
		cmocka_unit_test(peeked_bytes_stay),
		cmocka_unit_test(peek_waits_for_enough),
		cmocka_unit_test(many_unread_messages),
		cmocka_unit_test(both_write_blocked),
		cmocka_unit_test(depths),
		cmocka_unit_test(registered),
		cmocka_unit_test(file),
		cmocka_unit_test(wait_looks_first),
		cmocka_unit_test(chunks_end_with_a_short_packet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
