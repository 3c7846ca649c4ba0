/* SPDX-License-Identifier: MIT */
#ifndef SNT_STREAM_FLOW_H
#define SNT_STREAM_FLOW_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Flow control. Nothing here depends on a device: bytes and receives are counted from 0
 * and never wrap, and what a peer reports is checked against what it can know.
 *
 * A byte's place in the ring is its position modulo the ring's size, so places are
 * never sent: messages arrive in order, and each begins where the last one ended. The
 * peer may write `size` bytes beyond the position that it was told has been consumed.
 * Its messages take receives, too, and it may use `receives` of them beyond the number
 * that it was told have been replaced. Some of these are reserved for messages without
 * bytes, which therefore can always be sent: credits and ends never wait behind data.
 *
 * The 32 bits of an immediate:
 *
 *	bits 31-30  the kind
 *	NOTE        bit 29      set
 *	            bits 28-0   a number of the stream's user, of which the newest counts
 *	CREDIT      bits 29-14  bytes consumed, in units, modulo 2^16
 *	            bits 13-0   receives replaced, modulo 2^14
 *	END         bit 29      the stream is aborted, else shut down
 *	            bits 28-0   bytes sent, modulo 2^29
 *	LENGTH      bits 29-0   of the message, where its receiver cannot know it otherwise
 *
 * A unit is such that a ring has at most 2^15 of them, so that differences modulo 2^16
 * are exact. A unit that is consumed only in part is reported later. An immediate is
 * never 0, which in DQPLB means that there is none.
 */

enum snt__imm {
	SNT__IMM_NOTE, /* or none, if all other bits are 0 as well */
	SNT__IMM_CREDIT,
	SNT__IMM_END,
	SNT__IMM_LENGTH,
};

#define SNT__IMM_SHIFT	  30
#define SNT__IMM_NOTED	  (1u << 29)
#define SNT__IMM_NUMBER	  (SNT__IMM_NOTED - 1)
#define SNT__IMM_ABORTED  (1u << 29)
#define SNT__IMM_POSITION (SNT__IMM_ABORTED - 1)
#define SNT__IMM_VALUE	  ((1u << SNT__IMM_SHIFT) - 1)

/*
 * Receives that data never takes. Each end reports when it has replaced 8 of these, so
 * it is enough that everything that both ends can send before either has received a
 * report fits: a credit for each quarter of the ring and each quarter of the receives
 * of data, of 2 receives each in DQPLB, and a note. An end reports a note's receive at
 * once, and the next note waits for that.
 */
#define SNT__RECEIVES_KEPT 32
#define SNT__RECEIVES_TELL 8

/* The most receives that a message takes. */
#define SNT__MESSAGE_COST_MAX 2

/* What the peer lets us send. */
struct snt__outflow {
	uint64_t size; /* of its ring, a power of two */
	uint64_t unit;
	uint64_t sent;
	uint64_t freed; /* consumed, as the peer has reported */
	uint64_t spent; /* receives */
	uint64_t returned;
	uint32_t receives;
	/* The receives, spent and not returned, of messages without bytes. Receives are
	 * returned in the order in which they were spent, so that it is known which
	 * these are. */
	uint32_t others;
	uint64_t note_end; /* `spent`, after the last note */
	uint32_t other_head, other_tail;
	struct snt__other {
		uint64_t end; /* `spent`, after it */
		unsigned cost;
	} other[SNT__RECEIVES_KEPT];
};

/* What we let the peer send. */
struct snt__inflow {
	uint64_t size;
	uint64_t unit;
	uint64_t arrived;
	uint64_t consumed;
	uint64_t told;	/* of `consumed`, as reported to the peer; a multiple of unit */
	uint64_t taken; /* receives, replaced */
	uint64_t taken_told;
	uint64_t data_taken; /* of these, by messages with bytes; since last told */
	uint64_t met;	     /* receives taken by messages, replaced or not */
	uint64_t most;
	uint32_t receives;
	bool owes; /* a credit, for a note */
	bool ended;
};

void snt__outflow_init(struct snt__outflow *out, uint64_t size, uint32_t receives);
void snt__inflow_init(struct snt__inflow *in, uint64_t size, uint32_t receives);

/* The room in the peer's ring, in bytes. */
static inline uint64_t snt__outflow_room(const struct snt__outflow *out)
{
	return out->size - (out->sent - out->freed);
}

/* May a message with bytes be sent that takes so many receives? */
static inline bool snt__outflow_may(const struct snt__outflow *out, unsigned cost)
{
	return out->spent - out->returned + cost <=
	       (uint64_t)out->receives - SNT__RECEIVES_KEPT + out->others;
}

/* The same without bytes. */
static inline bool snt__outflow_may_tell(const struct snt__outflow *out, unsigned cost)
{
	return out->others + cost <= SNT__RECEIVES_KEPT;
}

static inline void snt__outflow_spend(struct snt__outflow *out, uint64_t bytes,
				      unsigned cost)
{
	out->sent += bytes;
	out->spent += cost;
}

/* The same for a note. */
static inline bool snt__outflow_may_note(const struct snt__outflow *out, unsigned cost)
{
	return out->returned >= out->note_end && snt__outflow_may_tell(out, cost);
}

/* The same without bytes. */
void snt__outflow_spend_other(struct snt__outflow *out, unsigned cost);

/* What was spent last is a note's. */
static inline void snt__outflow_noted(struct snt__outflow *out)
{
	out->note_end = out->spent;
}

/* A CREDIT has arrived. NULL, or what is wrong with it. */
const char *snt__outflow_credit(struct snt__outflow *out, uint32_t imm);

static inline uint64_t snt__inflow_unread(const struct snt__inflow *in)
{
	return in->arrived - in->consumed;
}

/* A message has arrived with so many bytes, or none, and took so many receives. NULL,
 * or what is wrong with it. */
const char *snt__inflow_arrive(struct snt__inflow *in, uint64_t bytes, unsigned cost);
const char *snt__inflow_end(struct snt__inflow *in, uint32_t imm);

/* Receives have been replaced, `data` of them for data. */
static inline void snt__inflow_replace(struct snt__inflow *in, unsigned receives,
				       unsigned of_data)
{
	in->taken += receives;
	in->data_taken += of_data;
}

/* due(): must a CREDIT be sent now? worth(): is one useful if it costs little? */
bool snt__inflow_due(const struct snt__inflow *in);
bool snt__inflow_worth(const struct snt__inflow *in);

/* Makes a CREDIT, which then counts as reported. */
uint32_t snt__inflow_tell(struct snt__inflow *in);

static inline uint32_t snt__imm(enum snt__imm kind, uint32_t value)
{
	return (uint32_t)kind << SNT__IMM_SHIFT | value;
}

static inline enum snt__imm snt__imm_kind(uint32_t imm)
{
	return (enum snt__imm)(imm >> SNT__IMM_SHIFT);
}

#endif
