/* SPDX-License-Identifier: MIT */
#ifndef CHANNEL_KIT_H
#define CHANNEL_KIT_H

#include "lib/stream_kit.h"

#include "channel/channel.h"

/*
 * Words for tests of channels, beside those for streams: both ends of the world have a
 * channel. A message's bytes are made of a number and of its sender.
 */

#define KIT_MEMORY (UINT64_C(1) << 20)

/* Registered memory of an end, for offers and fetches. */
struct kit_memory {
	struct snt_mem *mem;
	uint8_t *bytes;
};

extern struct snt_channel *kit_channel[2];
extern struct kit_memory kit_memory[2];

/* Options of the channels to come. */
extern struct snt_channel_opts kit_channel_opts[2];

void kit_channels_open(const struct kit_way *way, const struct kit_opts *opts);
/* Both shut down, if they have not, and end well; then all goes. */
void kit_channels_finish(void);
/* All goes, whatever its state. */
void kit_channels_close(void);
/* One end goes, without a word of the program. */
void kit_channel_destroy(unsigned end);

struct snt_channel_info kit_channel_info(unsigned end);

void kit_fill_message(unsigned from, uint64_t number, void *buffer, size_t length);
void kit_compare_message(unsigned from, uint64_t number, const void *buffer,
			 size_t length);
/* The result of the call. */
int kit_send(unsigned from, uint64_t number, size_t length);
/* Until the next message has arrived; it must be this one. */
void kit_expect(unsigned to, uint64_t number, size_t length);

#define kit_has(end, events) (snt__chan_states(kit_channel[end]) & (events))

/* Sends, offers and fetches of tests, and how they ended. */
struct kit_offer {
	struct snt_offer offer;
	unsigned released;
	unsigned turn; /* the position among all that ended, from 1 */
};

struct kit_fetch {
	struct snt_fetch fetch;
	unsigned done;
	unsigned turn;
};

extern unsigned kit_turns;

/* Of the bytes from `at` on in the end's memory, filled as that message. */
int kit_offer(unsigned end, struct kit_offer *offer, uint64_t number, uint64_t at,
	      uint64_t length);
int kit_fetch(unsigned end, struct kit_fetch *fetch, uint64_t at, uint64_t size);

#endif
