/* SPDX-License-Identifier: MIT */
#include "stream_kit.h"

const struct kit_way kit_ways[] = {
	{ .name = "one lane", .lanes = 1 },
	{ .name = "two lanes", .lanes = 2 },
	{ .name = "DQPLB by card",
	  .by_card = true,
	  .scheme = SNT_SCHEME_DQPLB,
	  .lanes = 3 },
	{ .name = "SPRAY by card",
	  .by_card = true,
	  .scheme = SNT_SCHEME_SPRAY,
	  .lanes = 2 },
	{ .name = "tracked by card",
	  .by_card = true,
	  .scheme = SNT_SCHEME_DQPLB,
	  .lanes = 1 },
};

struct world world;

bool kit_real(void)
{
	return getenv("STREAM_REAL") != NULL;
}

static void check_fault(const char *text)
{
	if (text)
		fail_msg("%s", text);
}

static void set_opts(const struct kit_way *way, const struct kit_opts *opts)
{
	uint32_t depth = opts && opts->depth ? opts->depth : 64;

	for (unsigned i = 0; i < 2; i++) {
		struct world_end *end = &world.end[i];

		if (opts) {
			end->opts.recv_size = opts->recv_size[i];
			end->opts.send_size = opts->send_size;
			end->opts.ready = opts->ready;
			end->opts.arg = end;
		}
		if (!way)
			continue;
		end->qp_opts.scheme = way->scheme;
		end->qp_opts.lanes = way->lanes;
		end->qp_opts.recv_depth = SNT__RECEIVES_KEPT + 2 * depth;
		end->qp_opts.lane_depth = end->qp_opts.recv_depth + 16;
		end->qp_opts.send_depth = depth + 8;
		if (way->by_card)
			continue;
		end->opts.lanes = way->lanes;
		end->opts.depth = depth;
		/* The CQ that streams share is not meant for so many. */
		end->opts.cq = depth > 64 ? end->cq : NULL;
	}
}

void kit_open_world(const struct kit_opts *opts)
{
	world_cq_depth = 2048;
	check_fault(world_simple(&world, kit_real()));
	set_opts(NULL, opts);
}

void kit_open(const struct kit_way *way, const struct kit_opts *opts)
{
	world_cq_depth = opts && opts->depth > 64 ? 32000 : 2048;
	check_fault(world_simple(&world, kit_real()));
	world.by_card = way->by_card;
	set_opts(way, opts);
	check_fault(world_connected(&world));
}

void kit_close_after_lie(void)
{
	check_fault(world_close(&world));
}

void kit_close(void)
{
	for (unsigned i = 0; i < 2; i++)
		if (kit_end(i))
			assert_true(kit_info(i).receives_most <=
				    kit_info(i).receives_granted);
	assert_int_equal(world_rnr(&world), 0);
	kit_close_after_lie();
}

struct snt_stream_info kit_info(unsigned end)
{
	struct snt_stream_info info = { .size = sizeof(info) };

	assert_success(snt_stream_query(kit_end(end), &info));
	return info;
}

bool kit_is_over(unsigned end)
{
	return kit_info(end).state == SNT_STREAM_ENDED;
}

/*
 * Bytes
 */

uint8_t kit_byte(unsigned from, uint64_t position)
{
	return (uint8_t)((position + from * 1000003 + 1) * 0x9e3779b97f4a7c15 >> 56);
}

void kit_fill(unsigned from, uint64_t position, void *buffer, size_t length)
{
	uint8_t *to = buffer;

	for (size_t i = 0; i < length; i++)
		to[i] = kit_byte(from, position + i);
}

void kit_compare(unsigned from, uint64_t position, const void *buffer, size_t length)
{
	const uint8_t *at = buffer;

	for (size_t i = 0; i < length; i++)
		if (at[i] != kit_byte(from, position + i))
			fail_msg("byte %llu is another one",
				 (unsigned long long)(position + i));
}

size_t kit_write_some(unsigned end, uint64_t position, size_t length)
{
	uint8_t *buffer = malloc(length);
	ssize_t ret;

	assert_non_null(buffer);
	kit_fill(end, position, buffer, length);
	ret = snt_stream_write(kit_end(end), buffer, length);
	free(buffer);
	if (ret == -EAGAIN)
		return 0;
	assert_success(ret);
	return (size_t)ret;
}

size_t kit_read_some(unsigned end, uint64_t position, size_t length)
{
	uint8_t *buffer = malloc(length);
	ssize_t ret = snt_stream_read(kit_end(end), buffer, length);

	if (ret > 0)
		kit_compare(!end, position, buffer, (size_t)ret);
	free(buffer);
	if (ret == -EAGAIN)
		return 0;
	assert_success(ret);
	return (size_t)ret;
}

void kit_transfer(unsigned from, uint64_t position, uint64_t length, size_t write_size,
		  size_t read_size)
{
	uint64_t written = 0, got = 0;

	while (got < length) {
		uint64_t before = written + got;

		if (written < length) {
			uint64_t left = length - written;

			written +=
				kit_write_some(from, position + written,
					       left < write_size ? left : write_size);
		}
		got += kit_read_some(!from, position + got, read_size);
		if (written + got == before)
			kit_until(
				snt__stream_state(kit_end(!from)) &
					SNT_STREAM_READABLE ||
				(written < length && snt__stream_state(kit_end(from)) &
							     SNT_STREAM_WRITABLE));
	}
	assert_int_equal(got, length);
}

void kit_finish(void)
{
	for (unsigned i = 0; i < 2; i++)
		assert_success(snt_stream_shutdown(kit_end(i)));
	kit_until(kit_is_over(0) && kit_is_over(1));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(kit_info(i).status, 0);
	kit_close();
}
