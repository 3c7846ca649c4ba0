/* SPDX-License-Identifier: MIT */
#include "stream/flow.h"

#include <string.h>

#define UNITS_MAX    (1u << 15)
#define UNIT_BITS    16
#define RECEIVE_BITS 14
#define UNIT_MASK    ((1u << UNIT_BITS) - 1)
#define RECEIVE_MASK ((1u << RECEIVE_BITS) - 1)

static uint64_t unit_of(uint64_t size)
{
	return size > UNITS_MAX ? size / UNITS_MAX : 1;
}

void snt__outflow_init(struct snt__outflow *out, uint64_t size, uint32_t receives)
{
	memset(out, 0, sizeof(*out));
	out->size = size;
	out->unit = unit_of(size);
	out->receives = receives;
}

void snt__inflow_init(struct snt__inflow *in, uint64_t size, uint32_t receives)
{
	memset(in, 0, sizeof(*in));
	in->size = size;
	in->unit = unit_of(size);
	in->receives = receives;
}

void snt__outflow_spend_other(struct snt__outflow *out, unsigned cost)
{
	out->spent += cost;
	out->others += cost;
	out->other[out->other_tail++ % SNT__RECEIVES_KEPT] =
		(struct snt__other){ .end = out->spent, .cost = cost };
}

static void return_others(struct snt__outflow *out)
{
	while (out->other_head != out->other_tail) {
		struct snt__other *other =
			&out->other[out->other_head % SNT__RECEIVES_KEPT];

		if (other->end > out->returned)
			return;
		out->others -= other->cost;
		out->other_head++;
	}
}

const char *snt__outflow_credit(struct snt__outflow *out, uint32_t imm)
{
	uint32_t units = imm >> RECEIVE_BITS & UNIT_MASK;
	uint32_t receives = imm & RECEIVE_MASK;
	uint64_t bytes = ((units - out->freed / out->unit) & UNIT_MASK) * out->unit;
	uint64_t returned = (receives - out->returned) & RECEIVE_MASK;

	if (bytes > out->sent - out->freed)
		return "it says that it has read more than it was sent";
	if (returned > out->spent - out->returned)
		return "it says that it has replaced more receives than were used";
	out->freed += bytes;
	out->returned += returned;
	return_others(out);
	return NULL;
}

const char *snt__inflow_arrive(struct snt__inflow *in, uint64_t bytes, unsigned cost)
{
	in->met += cost;
	if (in->met - in->taken_told > in->most)
		in->most = in->met - in->taken_told;
	if (in->met - in->taken_told > in->receives)
		return "it used more receives than it may";
	if (!bytes)
		return NULL;
	if (in->ended)
		return "it sent data after it had shut down";
	if (bytes > in->size - (in->arrived - in->told))
		return "it wrote more than there was room for";
	in->arrived += bytes;
	return NULL;
}

const char *snt__inflow_end(struct snt__inflow *in, uint32_t imm)
{
	if (in->ended)
		return "it shut down twice";
	if ((imm & SNT__IMM_POSITION) != (in->arrived & SNT__IMM_POSITION))
		return "it says that it sent another number of bytes than came";
	in->ended = true;
	return NULL;
}

/* Receives that data may use. */
static uint32_t data_receives(const struct snt__inflow *in)
{
	return in->receives - SNT__RECEIVES_KEPT;
}

static bool has_freed(const struct snt__inflow *in, unsigned part)
{
	uint32_t receives = data_receives(in) / part;

	if (in->ended)
		return false; /* the peer sends nothing more */
	return in->consumed - in->told >= in->size / part ||
	       in->data_taken >= (receives ? receives : 1);
}

/* Receives taken by messages without bytes. */
static uint64_t others_taken(const struct snt__inflow *in)
{
	return in->taken - in->taken_told - in->data_taken;
}

bool snt__inflow_due(const struct snt__inflow *in)
{
	return in->owes || has_freed(in, 4) || others_taken(in) >= SNT__RECEIVES_TELL;
}

bool snt__inflow_worth(const struct snt__inflow *in)
{
	return in->owes || has_freed(in, 8) ||
	       others_taken(in) >= SNT__RECEIVES_TELL / 2;
}

uint32_t snt__inflow_tell(struct snt__inflow *in)
{
	uint64_t units = in->consumed / in->unit;

	in->told = units * in->unit;
	in->taken_told = in->taken;
	in->data_taken = 0;
	in->owes = false;
	return snt__imm(SNT__IMM_CREDIT, (uint32_t)(units & UNIT_MASK) << RECEIVE_BITS |
						 (uint32_t)(in->taken & RECEIVE_MASK));
}
