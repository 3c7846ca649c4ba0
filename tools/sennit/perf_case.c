/* SPDX-License-Identifier: MIT */
#include "perf_case.h"

#include <errno.h>
#include <sennit/qp.h>

#include "perf_error.h"

/* Memory for slots in each direction, unless two messages need more. */
#define MEMORY (UINT64_C(32) << 20)

#define WINDOW_MAX 1024u

static uint64_t clamp_u64(uint64_t value, uint64_t min, uint64_t max)
{
	return value < min ? min : value > max ? max : value;
}

bool perf_case_is_atomic(const struct perf_case *c)
{
	return c->op == PERF_FETCH_ADD || c->op == PERF_CMP_SWAP;
}

bool perf_case_echoes(const struct perf_case *c)
{
	return c->kind == PERF_LATENCY &&
	       (c->op == PERF_WRITE_IMM || c->op == PERF_SEND || c->op == PERF_STREAM);
}

/* The receiver does not notice a plain write, so it must be announced to be
 * verified. */
bool perf_case_flows(const struct perf_case *c)
{
	return !perf_case_echoes(c) &&
	       (c->op == PERF_WRITE_IMM || c->op == PERF_SEND || c->op == PERF_STREAM ||
		(c->op == PERF_WRITE && c->verify));
}

bool perf_case_sends(const struct perf_case *c, bool serves)
{
	return !serves || c->bidirectional || perf_case_echoes(c);
}

bool perf_case_takes(const struct perf_case *c, bool serves)
{
	return perf_case_echoes(c) ||
	       (perf_case_flows(c) && (serves || c->bidirectional));
}

static int check_words(const struct perf_case *c)
{
	if (c->kind < PERF_BANDWIDTH || c->kind > PERF_RATE)
		return perf_fail(EINVAL, "unknown test %u", c->kind);
	if (c->op < PERF_WRITE || c->op > PERF_OP_LAST)
		return perf_fail(EINVAL, "unknown operation %u", c->op);
	if (c->scheme > SNT_SCHEME_DQPLB)
		return perf_fail(EINVAL, "unknown scheme %u", c->scheme);
	if (c->balance > SNT_BALANCE_BY_TIME)
		return perf_fail(EINVAL, "unknown balance %u", c->balance);
	if (c->bidirectional && c->kind == PERF_LATENCY)
		return perf_fail(
			EINVAL,
			"--bidirectional works with bw and rate only; lat has one message in "
			"flight");
	return 0;
}

int perf_case_check(const struct perf_case *c)
{
	int ret = check_words(c);

	if (ret)
		return ret;
	if (!c->size || c->size > PERF_SIZE_MAX)
		return perf_fail(EINVAL,
				 "size %llu is out of range; it must be from 1 to %llu",
				 (unsigned long long)c->size,
				 (unsigned long long)PERF_SIZE_MAX);
	if (perf_case_is_atomic(c) && c->size != 8)
		return perf_fail(EINVAL, "atomics have 8 bytes, not %llu",
				 (unsigned long long)c->size);
	if (!c->depth || c->depth > PERF_DEPTH_MAX)
		return perf_fail(EINVAL,
				 "depth %u is out of range; it must be from 1 to %u",
				 c->depth, PERF_DEPTH_MAX);
	if (!c->batch || c->batch > PERF_BATCH_MAX || c->batch > c->depth)
		return perf_fail(
			EINVAL,
			"batch %u is out of range; it must be from 1 to %u, and at most the "
			"depth of %u",
			c->batch, PERF_BATCH_MAX, c->depth);
	if (!c->lanes || c->lanes > PERF_LANES_MAX)
		return perf_fail(
			EINVAL,
			"lane count %u is out of range; it must be from 1 to %u",
			c->lanes, PERF_LANES_MAX);
	if (c->mtu > 4096 || (c->mtu & (c->mtu - 1)) || (c->mtu && c->mtu < 256))
		return perf_fail(EINVAL,
				 "MTU %u is not one of 256, 512, 1024, 2048 and 4096",
				 c->mtu);
	if (c->timeout > 31)
		return perf_fail(EINVAL,
				 "timeout %u is out of range; it must be from 1 to 31",
				 c->timeout);
	if (c->fragment % SNT_FRAGMENT_SIZE_UNIT || c->fragment > PERF_SIZE_MAX)
		return perf_fail(
			EINVAL,
			"fragment size %llu is not a multiple of %d from %d to %u",
			(unsigned long long)c->fragment, SNT_FRAGMENT_SIZE_UNIT,
			SNT_FRAGMENT_SIZE_MIN, (unsigned)PERF_SIZE_MAX);
	return 0;
}

/* If nothing is verified, messages share two slots, as in perftest: the transport is
 * measured and not the cache. */
struct perf_shape perf_case_shape(const struct perf_case *c)
{
	struct perf_shape shape;

	shape.stride = (c->size + 63) / 64 * 64;
	shape.window = (uint32_t)clamp_u64(UINT64_C(2) * c->depth, 2, WINDOW_MAX);
	if (c->verify)
		shape.window =
			(uint32_t)clamp_u64(MEMORY / shape.stride, 2, shape.window);
	shape.slots = c->verify ? shape.window : 2;
	shape.credit = (uint32_t)clamp_u64(shape.window / 4, 1, shape.window);
	shape.signaled = c->verify || c->kind == PERF_LATENCY
				 ? 1
				 : (uint32_t)clamp_u64(c->depth / 8, 1, 32);
	shape.memory = 2 * shape.slots * shape.stride;
	return shape;
}

const char *perf_kind_name(unsigned kind)
{
	static const char *const name[] = { "?", "bw", "lat", "rate" };

	return name[kind <= PERF_RATE ? kind : 0];
}

const char *perf_op_name(unsigned op)
{
	static const char *const name[] = {
		"?",	"write",     "write-imm", "read",
		"send", "fetch-add", "cmp-swap",  "stream"
	};

	return name[op <= PERF_OP_LAST ? op : 0];
}

const char *perf_scheme_name(unsigned scheme)
{
	return scheme == SNT_SCHEME_DQPLB ? "dqplb" : "spray";
}
