/* SPDX-License-Identifier: MIT */
#include "kit.h"

struct snt_channel *kit_channel[2];
struct kit_memory kit_memory[2];
struct snt_channel_opts kit_channel_opts[2];
unsigned kit_turns;

void kit_channels_open(const struct kit_way *way, const struct kit_opts *opts)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_READ;

	kit_open(way, opts);
	kit_turns = 0;
	for (unsigned i = 0; i < 2; i++) {
		struct kit_memory *memory = &kit_memory[i];

		kit_channel_opts[i].size = sizeof(kit_channel_opts[i]);
		assert_success(snt_channel_create(kit_end(i), &kit_channel_opts[i],
						  &kit_channel[i]));
		memory->bytes = calloc(1, KIT_MEMORY);
		assert_non_null(memory->bytes);
		assert_success(snt_mem_register(world.end[i].ctx, memory->bytes,
						KIT_MEMORY, access, &memory->mem));
	}
}

void kit_channel_destroy(unsigned end)
{
	assert_success(snt_channel_destroy(kit_channel[end]));
	kit_channel[end] = NULL;
	kit_end(end) = NULL;
}

void kit_channels_close(void)
{
	for (unsigned i = 0; i < 2; i++)
		if (kit_channel[i])
			kit_channel_destroy(i);
	for (unsigned i = 0; i < 2; i++) {
		struct snt__conn_loop *conn_loop = world.end[i].loop->conn_loop;

		kit_until(!conn_loop || !conn_loop->lingering);
		assert_success(snt_mem_release(kit_memory[i].mem));
		free(kit_memory[i].bytes);
		kit_channel_opts[i] = (struct snt_channel_opts){ 0 };
	}
	kit_close_after_lie();
}

void kit_channels_finish(void)
{
	for (unsigned i = 0; i < 2; i++)
		if (!kit_channel[i]->shut)
			assert_success(snt_channel_shutdown(kit_channel[i]));
	kit_until(kit_has(0, SNT_CHANNEL_OVER) && kit_has(1, SNT_CHANNEL_OVER));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kit_channel_info(i).status, 0);
		assert_true(kit_info(i).receives_most <= kit_info(i).receives_granted);
	}
	assert_int_equal(world_rnr(&world), 0);
	kit_channels_close();
}

struct snt_channel_info kit_channel_info(unsigned end)
{
	struct snt_channel_info info = { .size = sizeof(info) };

	assert_success(snt_channel_query(kit_channel[end], &info));
	return info;
}

/*
 * Messages
 */

void kit_fill_message(unsigned from, uint64_t number, void *buffer, size_t length)
{
	kit_fill(from, number * 7919, buffer, length);
}

void kit_compare_message(unsigned from, uint64_t number, const void *buffer,
			 size_t length)
{
	kit_compare(from, number * 7919, buffer, length);
}

int kit_send(unsigned from, uint64_t number, size_t length)
{
	uint8_t *buffer = malloc(length ? length : 1);
	int ret;

	assert_non_null(buffer);
	kit_fill_message(from, number, buffer, length);
	ret = snt_channel_send(kit_channel[from], buffer, length);
	free(buffer);
	return ret;
}

void kit_expect(unsigned to, uint64_t number, size_t length)
{
	uint8_t *buffer = malloc(length + 1);

	assert_non_null(buffer);
	kit_until(kit_has(to, SNT_CHANNEL_READABLE));
	assert_int_equal(snt_channel_recv(kit_channel[to], buffer, length), length);
	kit_compare_message(!to, number, buffer, length);
	free(buffer);
}

/*
 * Offers
 */

static void count_release(struct snt_offer *offer)
{
	struct kit_offer *at = offer->arg;

	at->released++;
	at->turn = ++kit_turns;
}

static void count_fetch(struct snt_fetch *fetch)
{
	struct kit_fetch *at = fetch->arg;

	at->done++;
	at->turn = ++kit_turns;
}

int kit_offer(unsigned end, struct kit_offer *offer, uint64_t number, uint64_t at,
	      uint64_t length)
{
	uint8_t *bytes = kit_memory[end].bytes + at;

	kit_fill_message(end, number, bytes, length);
	*offer = (struct kit_offer){ .offer = { .mem = kit_memory[end].mem,
						.addr = bytes,
						.length = length,
						.released = count_release,
						.arg = offer } };
	return snt_channel_offer(kit_channel[end], &offer->offer);
}

int kit_fetch(unsigned end, struct kit_fetch *fetch, uint64_t at, uint64_t size)
{
	*fetch = (struct kit_fetch){ .fetch = { .mem = kit_memory[end].mem,
						.addr = kit_memory[end].bytes + at,
						.size = size,
						.done = count_fetch,
						.arg = fetch } };
	return snt_channel_fetch(kit_channel[end], &fetch->fetch);
}
