/* SPDX-License-Identifier: MIT */
#ifndef STREAM_KIT_H
#define STREAM_KIT_H

#include "lib/test.h"

#include "stream/stream.h"
#include "stream_world.h"

/*
 * Words for tests of streams. There is one world, with two ends; the ways to connect
 * them are tried one after the other. With STREAM_REAL in the environment all of it
 * happens on the devices that there are, and else in virtual time.
 */

/* A way. */
struct kit_way {
	const char *name;
	bool by_card;
	enum snt_scheme scheme; /* by card */
	uint32_t lanes;
};

extern const struct kit_way kit_ways[];
#define KIT_WAYS 5

extern struct world world;

struct kit_opts {
	uint64_t recv_size[2];
	uint64_t send_size;
	uint32_t depth;
	void (*ready)(void *arg, struct snt_stream *stream, unsigned events);
};

bool kit_real(void);
/* Both ends are connected. */
void kit_open(const struct kit_way *way, const struct kit_opts *opts);
/* Contexts only. */
void kit_open_world(const struct kit_opts *opts);
/* Nothing may be left, and no receiver was not ready. */
void kit_close(void);
/* The same after one end broke the rules. */
void kit_close_after_lie(void);

#define kit_end(index) (world.end[index].stream)

/* For as long as it takes, or the test fails. */
#define kit_until(condition)                                               \
	do {                                                               \
		uint64_t kit_limit = world_now(&world) + 30000 * WORLD_MS; \
		bool kit_goes_on = true;                                   \
		while (!(condition)) {                                     \
			if (!kit_goes_on)                                  \
				fail_msg("never: %s", #condition);         \
			kit_goes_on = world_step(&world, kit_limit);       \
		}                                                          \
	} while (0)

struct snt_stream_info kit_info(unsigned end);
bool kit_is_over(unsigned end);

/* Byte i of what `from` sends. */
uint8_t kit_byte(unsigned from, uint64_t position);
void kit_fill(unsigned from, uint64_t position, void *buffer, size_t length);
void kit_compare(unsigned from, uint64_t position, const void *buffer, size_t length);

/* As many bytes as can be written now; of those from `position` on. */
size_t kit_write_some(unsigned end, uint64_t position, size_t length);
/* All that is there now is read, and compared. */
size_t kit_read_some(unsigned end, uint64_t position, size_t length);
/* From one end to the other, in pieces. */
void kit_transfer(unsigned from, uint64_t position, uint64_t length, size_t write_size,
		  size_t read_size);
/* Both end well. */
void kit_finish(void);

/* Runs a test in every way. */
#define KIT_EACH_WAY(name)                              \
	static void name(void **state)                  \
	{                                               \
		(void)state;                            \
		for (unsigned i = 0; i < KIT_WAYS; i++) \
			name##_on(&kit_ways[i]);        \
	}

#endif
