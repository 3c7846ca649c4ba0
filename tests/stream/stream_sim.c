/* SPDX-License-Identifier: MIT */
/*
 * Streams on a bad fabric, against a model. Both ends read, write, flush and shut down
 * as chance has it; an end that got -EAGAIN does not try again before it is told to.
 * Every byte is made of its position, so that nothing needs to be remembered. Whatever
 * happens, what is read is a prefix of what was written; what is known to have arrived
 * can be read; and where nothing is broken on purpose, everything arrives, both ends
 * end well, no end waits for ever, and no device ever found a receiver that was not
 * ready.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/search.h"
#include "lib/stream_chance.h"
#include "stream/stream.h"
#include "vqp/post.h"
#include "vqp/qp.h"

enum kind {
	ABORT = CHANCE_KINDS, /* an end ends it */
	DESTROY,	      /* an end is done with it, at any time */
	CUT,		      /* a cable is cut */
	LIAR,		      /* an end says what is not so */
};

static const char *const kinds[] = { CHANCE_NAMES, "abort", "destroy",
				     "cut",	   "liar",  NULL };

#define US	 1000u
#define GOAL_MAX 16384
#define SENDS	 3
#define SEND_MAX 2048
#define OPS_MAX	 100000
#define PATIENCE (UINT64_C(60000) * WORLD_MS)
#define BUFFER	 4096

struct send {
	struct snt_stream_send send;
	bool busy;
};

/* One end, as the model knows it. */
struct side {
	unsigned index;
	uint64_t goal, written, read;
	uint64_t arrived;  /* of `written`, known to be there */
	uint64_t flushing; /* what a flush is waited for */
	bool waits_read, waits_write, waits_flush;
	bool owes_read, owes_write; /* it was told: the next call must do something */
	bool shut, ended, failed, over, gone;
	uint32_t zeal; /* percent of its turns that it uses */
	bool acts_inside;
	unsigned released, registered;
	struct snt_mem *mem;
	uint8_t *memory;
	struct send send[SENDS];
};

static struct run {
	const struct search_plan *plan;
	uint64_t random;
	struct world world;
	struct side side[2];
	uint32_t ops;
	/* What is going to happen, to which end, and after how many turns. */
	bool abort, destroy, cut, lie;
	bool struck;
	bool late; /* the lie did no harm: all had been said before */
	unsigned victim;
	uint32_t when;
	/* The second end waits in the listener's queue, for so many turns, of which
	 * that many are left when it happens. */
	bool queued;
	uint32_t accept_in;
	uint32_t strike_in;
	const char *fault;
	char text[256];
} run;

static uint32_t dice(uint32_t sides)
{
	return random_below(&run.random, sides);
}

static bool has(enum kind kind)
{
	return search_has(run.plan, kind);
}

/* Rolls first, so that a run without one kind of fault is otherwise the same. */
static bool chance(enum kind kind, uint32_t percent)
{
	bool hit = dice(100) < percent;

	return hit && has(kind);
}

#define wrong(...)                                                         \
	do {                                                               \
		if (!run.fault) {                                          \
			snprintf(run.text, sizeof(run.text), __VA_ARGS__); \
			run.fault = run.text;                              \
		}                                                          \
	} while (0)

#define say(...)                             \
	do {                                 \
		if (run.plan->verbose)       \
			printf(__VA_ARGS__); \
	} while (0)

static uint8_t byte_at(unsigned from, uint64_t position)
{
	return (uint8_t)((position + from * 1000003 + 1) * 0x9e3779b97f4a7c15 >> 56);
}

static struct snt_stream *stream_of(const struct side *side)
{
	return run.world.end[side->index].stream;
}

/*
 * Reading
 */

/* A peer that can lie about lengths can lie about bytes. */
static bool is_lied_to(const struct side *side)
{
	return run.lie && run.struck && side->index != run.victim;
}

static void check_bytes(struct side *side, const uint8_t *bytes, size_t count)
{
	if (is_lied_to(side))
		return;
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != byte_at(!side->index, side->read + i)) {
			wrong("end %u: byte %llu is another one", side->index,
			      (unsigned long long)(side->read + i));
			return;
		}
	side->read += count;
	if (side->read > run.side[!side->index].written)
		wrong("end %u has read more than was written", side->index);
}

static void judge_end(struct side *side, ssize_t ret)
{
	const struct side *other = &run.side[!side->index];

	if (ret == 0) {
		side->ended = true;
		if (!is_lied_to(side) && (!other->shut || side->read != other->written))
			wrong("end %u: the end after %llu of %llu bytes", side->index,
			      (unsigned long long)side->read,
			      (unsigned long long)other->written);
		return;
	}
	side->failed = true;
	if (snt__inflow_unread(&stream_of(side)->in))
		wrong("end %u fails before it has read what is there", side->index);
	say("end %u: read fails with %zd (%s)\n", side->index, ret, snt_err_text());
	if (!run.struck)
		wrong("end %u: read fails with %zd (%s)", side->index, ret,
		      snt_err_text());
	if (!run.lie && side->read < other->arrived)
		wrong("end %u fails after %llu bytes, and %llu had arrived",
		      side->index, (unsigned long long)side->read,
		      (unsigned long long)other->arrived);
}

static ssize_t read_peek(struct side *side, uint8_t *buffer, size_t length)
{
	struct snt_stream *stream = stream_of(side);
	struct iovec iov[2];
	uint64_t size = stream->in.size;
	/* An end that was told that there is something was not told that there is that
	 * much. */
	uint32_t least = dice((uint32_t)(length < size / 2 ? length : size / 2));
	bool asks = dice(3) == 0 && !side->owes_read;
	ssize_t ret = snt_stream_peek(stream, asks ? least : 0, iov);
	size_t take;

	if (ret <= 0)
		return ret;
	take = 1 + dice((uint32_t)ret);
	if (take > length)
		take = length;
	if (take <= iov[0].iov_len) {
		memcpy(buffer, iov[0].iov_base, take);
	} else {
		memcpy(buffer, iov[0].iov_base, iov[0].iov_len);
		memcpy(buffer + iov[0].iov_len, iov[1].iov_base, take - iov[0].iov_len);
	}
	if (snt_stream_consume(stream, take))
		wrong("end %u cannot consume: %s", side->index, snt_err_text());
	return (ssize_t)take;
}

static ssize_t read_vector(struct side *side, uint8_t *buffer, size_t length)
{
	size_t first = dice((uint32_t)length);
	struct iovec iov[] = { { buffer, first },
			       { NULL, 0 },
			       { buffer + first, length - first } };

	return snt_stream_readv(stream_of(side), iov, 3);
}

static size_t choose_length(void)
{
	static const uint32_t most[] = { 16, 64, 256, 1024, BUFFER };

	return 1 + dice(most[dice(5)]);
}

static void do_read(struct side *side)
{
	uint8_t buffer[BUFFER];
	size_t length = choose_length();
	uint32_t how = dice(10);
	ssize_t ret;

	if (how < 3)
		ret = read_peek(side, buffer, length);
	else if (how < 5)
		ret = read_vector(side, buffer, length);
	else
		ret = snt_stream_read(stream_of(side), buffer, length);
	say("%llu end %u reads %zu: %zd\n", (unsigned long long)world_now(&run.world),
	    side->index, length, ret);
	if (ret == -EAGAIN) {
		if (side->owes_read && !run.struck)
			wrong("end %u is told to read, and there is nothing",
			      side->index);
		side->waits_read = true;
		return;
	}
	side->owes_read = false;
	if (ret > 0)
		check_bytes(side, buffer, (size_t)ret);
	else
		judge_end(side, ret);
}

/*
 * Writing
 */

static void fill(const struct side *side, uint8_t *buffer, size_t length)
{
	for (size_t i = 0; i < length; i++)
		buffer[i] = byte_at(side->index, side->written + i);
}

static void released(struct snt_stream_send *at)
{
	struct send *send = (struct send *)at;
	struct side *side = at->arg;

	if (!send->busy)
		wrong("end %u: a send is released twice", side->index);
	if (at->result && !run.struck)
		wrong("end %u: a send is released with %d", side->index, at->result);
	memset((void *)(uintptr_t)at->addr, 0xdd, at->length);
	send->busy = false;
	side->released++;
}

static ssize_t write_registered(struct side *side, size_t length)
{
	for (unsigned i = 0; i < SENDS; i++) {
		struct send *send = &side->send[i];
		uint8_t *at = side->memory + i * SEND_MAX;
		int ret;

		if (send->busy)
			continue;
		if (length > SEND_MAX)
			length = SEND_MAX;
		fill(side, at, length);
		send->send = (struct snt_stream_send){ .mem = side->mem,
						       .addr = at,
						       .length = length,
						       .released = released,
						       .arg = side };
		send->busy = true;
		ret = snt_stream_write_registered(stream_of(side), &send->send);
		if (ret) {
			send->busy = false;
			return ret;
		}
		side->registered++;
		return (ssize_t)length;
	}
	return 0;
}

static ssize_t write_copied(struct side *side, size_t length)
{
	uint8_t buffer[BUFFER];
	size_t first = dice((uint32_t)length);
	struct iovec iov[] = { { buffer, first }, { buffer + first, length - first } };

	fill(side, buffer, length);
	if (dice(3))
		return snt_stream_write(stream_of(side), buffer, length);
	return snt_stream_writev(stream_of(side), iov, 2);
}

static void do_write(struct side *side)
{
	size_t length = choose_length();
	bool registered = dice(6) == 0;
	ssize_t ret;

	if (length > side->goal - side->written)
		length = side->goal - side->written;
	if (registered)
		ret = write_registered(side, length);
	else
		ret = write_copied(side, length);
	say("%llu end %u writes %zu%s: %zd\n",
	    (unsigned long long)world_now(&run.world), side->index, length,
	    registered ? " registered" : "", ret);
	if (ret == -EAGAIN) {
		if (side->owes_write && !run.struck)
			wrong("end %u is told to write, and there is no room",
			      side->index);
		side->waits_write = true;
	} else if (ret < 0) {
		side->failed = true;
		if (!run.struck)
			wrong("end %u: write fails with %zd (%s)", side->index, ret,
			      snt_err_text());
	} else {
		side->written += (uint64_t)ret;
	}
	if (!registered)
		side->owes_write = false;
}

static void do_flush(struct side *side)
{
	int ret = snt_stream_flush(stream_of(side));

	say("%llu end %u flushes: %d\n", (unsigned long long)world_now(&run.world),
	    side->index, ret);
	if (!ret) {
		side->arrived = side->written;
	} else if (ret == -EAGAIN) {
		side->waits_flush = true;
		side->flushing = side->written;
	} else {
		side->failed = true;
		if (!run.struck)
			wrong("end %u: flush fails with %d", side->index, ret);
	}
}

static void do_shutdown(struct side *side)
{
	int ret = snt_stream_shutdown(stream_of(side));

	say("end %u shuts down: %d\n", side->index, ret);
	side->shut = true;
	if (ret && !run.struck)
		wrong("end %u: shutdown fails with %d (%s)", side->index, ret,
		      snt_err_text());
}

/*
 * Turns
 */

/* Can it do anything at all? */
static bool may_act(const struct side *side)
{
	if (side->gone || !stream_of(side) || side->over)
		return false;
	if (!side->ended && !side->failed && !side->waits_read)
		return true;
	/* An end that flushes does so to the end before it shuts down. */
	return !side->shut && !side->failed &&
	       !(side->written < side->goal ? side->waits_write : side->waits_flush);
}

static void act(struct side *side)
{
	uint32_t what = dice(100);
	bool may_write = !side->shut && !side->failed;

	if (side->gone || !stream_of(side))
		return;
	if (what < 8 && may_write && !side->waits_flush)
		do_flush(side);
	else if (what < 55 && !side->ended && !side->failed && !side->waits_read)
		do_read(side);
	else if (may_write && side->written < side->goal && !side->waits_write)
		do_write(side);
	else if (may_write && side->written == side->goal && !side->waits_flush)
		do_shutdown(side);
	else if (!side->ended && !side->failed && !side->waits_read)
		do_read(side);
}

static void strike(struct side *side);

static void happened(void *arg, struct snt_stream *stream, unsigned events)
{
	struct side *side = arg;

	say("%llu end %u: events 0x%x\n", (unsigned long long)world_now(&run.world),
	    side->index, events);
	if (stream_of(side) && stream != stream_of(side))
		wrong("end %u: another stream", side->index);
	if (side->gone)
		wrong("end %u: told after it was destroyed", side->index);
	if (events & SNT_STREAM_READABLE) {
		side->waits_read = false;
		side->owes_read = true;
	}
	if (events & SNT_STREAM_WRITABLE) {
		side->waits_write = false;
		side->owes_write = true;
	}
	if (events & SNT_STREAM_FLUSHED) {
		side->waits_flush = false;
		if (!snt__stream_has_failed(stream) && side->flushing > side->arrived)
			side->arrived = side->flushing;
	}
	if (events & SNT_STREAM_OVER) {
		if (side->over)
			wrong("end %u: over twice", side->index);
		side->over = true;
	}
	if (!run.world.end[side->index].stream)
		return; /* it is on its way */
	if (!run.struck && run.destroy && side->index == run.victim && dice(4) == 0 &&
	    run.ops > run.when)
		strike(side);
	for (uint32_t i = side->acts_inside ? dice(4) : 0; i && !side->gone; i--)
		act(side);
}

/*
 * Faults
 */

/* Something that no honest end posts. Not signalled, so that its own end does not hear
 * of it. */
static void post_lie(struct snt_stream *stream, uint32_t word, uint64_t bytes)
{
	struct snt_sge sge = { stream->stage_mem, stream->stage, bytes };
	struct snt_send_wr wr = { .wr_id = (uintptr_t)&stream->send_port,
				  .opcode = SNT_OP_WRITE_IMM,
				  .sge_count = bytes != 0,
				  .imm = word,
				  .sge = &sge,
				  .remote = &stream->remote,
				  .remote_addr = stream->remote.addr };

	/* Nothing has been said if there is no room for it. */
	run.late |= snt__qp_post_send(stream->qp, &wr, 1) != 1;
}

static bool is_spray(const struct snt_stream *stream)
{
	return !stream->qp->pass_through && stream->qp->scheme == SNT_SCHEME_SPRAY;
}

static void lie(struct snt_stream *stream)
{
	struct snt__outflow *out = &stream->out;
	uint64_t most = stream->stage_size;

	uint32_t what = dice(5);

	say("lie %u\n", what);
	switch (what) {
	case 0: /* has read more than there is */
		post_lie(stream,
			 snt__imm(SNT__IMM_CREDIT,
				  (uint32_t)((stream->in.arrived / stream->in.unit +
					      20000) &
					     0xffff)
						  << 14 |
					  (uint32_t)(stream->in.taken & 0x3fff)),
			 0);
		break;
	case 1: /* has replaced more receives */
		post_lie(stream,
			 snt__imm(SNT__IMM_CREDIT,
				  (uint32_t)((stream->in.told / stream->in.unit) &
					     0xffff)
						  << 14 |
					  (uint32_t)((stream->in.met + 3000) & 0x3fff)),
			 0);
		break;
	case 2: /* has sent another number of bytes */
		post_lie(stream,
			 snt__imm(SNT__IMM_END,
				  (uint32_t)(out->sent + 1) & SNT__IMM_POSITION),
			 0);
		break;
	case 3: /* more bytes than there is room for */
		if (is_spray(stream))
			post_lie(stream,
				 snt__imm(SNT__IMM_LENGTH, (uint32_t)(out->size + 1)),
				 0);
		else if (out->size < most)
			for (unsigned i = 0; i < 2; i++) /* the first may fit */
				post_lie(stream, 0, out->size);
		else
			post_lie(stream, 0, 0);
		break;
	default: /* a word that means nothing here */
		post_lie(stream, is_spray(stream) ? 0 : snt__imm(SNT__IMM_LENGTH, 5),
			 0);
	}
}

static void strike(struct side *side)
{
	struct world_end *end = &run.world.end[side->index];

	if (!end->stream)
		return;
	say("%llu end %u strikes (%d%d%d%d)\n",
	    (unsigned long long)world_now(&run.world), side->index, run.abort,
	    run.destroy, run.cut, run.lie);
	if (run.lie && (!end->stream->opened || run.side[!side->index].over))
		return;
	run.struck = true;
	run.late = side->shut;
	if (run.cut)
		for (unsigned i = 0; i < end->devices; i++)
			snt__sim_device_cut(end->device[i], true);
	if (run.abort)
		snt_stream_abort(end->stream, "as planned");
	if (run.lie)
		lie(end->stream);
	if (!run.destroy)
		return;
	side->gone = true;
	snt_stream_destroy(end->stream);
	end->stream = NULL;
}

/*
 * The world
 */

static const char *make_side(unsigned index)
{
	struct side *side = &run.side[index];

	side->index = index;
	side->goal = dice(8) ? dice(GOAL_MAX >> dice(6)) : 0;
	side->zeal = dice(3) ? 20 + dice(80) : 2 + dice(6);
	side->acts_inside = dice(2);
	side->waits_read = true;
	side->memory = malloc(SENDS * SEND_MAX);
	if (snt_mem_register(run.world.end[index].ctx, side->memory, SENDS * SEND_MAX,
			     0, &side->mem))
		return "no memory";
	return NULL;
}

static void choose_faults(void)
{
	run.abort = chance(ABORT, 10);
	run.destroy = chance(DESTROY, 10) && !run.abort;
	run.cut = chance(CUT, 6) && !run.abort && !run.destroy;
	run.lie = chance(LIAR, 10) && !run.abort && !run.destroy && !run.cut;
	run.victim = dice(2);
	run.when = dice(dice(2) ? 30 : 400);
}

static bool will_strike(void)
{
	return run.abort || run.destroy || run.cut || run.lie;
}

/*
 * Playing
 */

static uint64_t progress(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < 2; i++) {
		const struct side *side = &run.side[i];

		sum += side->read + side->written + side->shut + side->ended +
		       side->over + side->gone + side->released + side->failed;
	}
	return sum + run.struck;
}

/* Will nothing happen to this side any more? */
static bool is_done(const struct side *side)
{
	if (side->gone || side->over)
		return true;
	/* By card, an end with nothing to send does not notice that a cable is cut, or
	 * that a liar has got stuck in its own lies. */
	return run.struck &&
	       ((run.world.by_card && (run.cut || run.lie)) || !stream_of(side));
}

/* Is there one, or will there be? */
static bool awaits_accept(void)
{
	return run.queued && stream_of(&run.side[0]) &&
	       stream_of(&run.side[0])->opened && run.accept_in;
}

static void accept_queued(void)
{
	struct world_end *end = &run.world.end[1];

	if (snt_stream_listener_wait(run.world.listener, 0, &end->stream))
		return;
	say("%llu end 1 is accepted\n", (unsigned long long)world_now(&run.world));
	run.queued = false;
	snt_stream_set_ready_handler(end->stream, end->opts.ready, end->opts.arg);
}

static void turn(void)
{
	if (awaits_accept())
		run.accept_in--;
	else if (run.queued)
		accept_queued();
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &run.side[i];

		if (dice(100) < side->zeal)
			act(side);
	}
	run.ops++;
	if (!run.struck && will_strike() && run.ops >= run.when &&
	    (!run.queued || run.accept_in <= run.strike_in))
		strike(&run.side[run.victim]);
}

static void say_state(const struct side *side)
{
	const struct snt_stream *stream = stream_of(side);

	if (!stream || !run.plan->verbose)
		return;
	printf("end %u: %llu of %llu written, %llu read, shut %d, waits %d%d%d\n",
	       side->index, (unsigned long long)side->written,
	       (unsigned long long)side->goal, (unsigned long long)side->read,
	       side->shut, side->waits_read, side->waits_write, side->waits_flush);
	printf("  staged %llu posted %llu released %llu chunk %llu, lots %u, WRs %u of %u, "
	       "scheme %u%s\n",
	       (unsigned long long)stream->staged, (unsigned long long)stream->posted,
	       (unsigned long long)stream->released, (unsigned long long)stream->chunk,
	       stream->send_batch_tail - stream->send_batch_head, stream->wrs,
	       stream->wr_limit, stream->qp ? stream->qp->scheme : 0,
	       stream->qp && stream->qp->pass_through ? " passes" : "");
	printf("  out: size %llu sent %llu freed %llu, receives %u spent %llu returned "
	       "%llu\n",
	       (unsigned long long)stream->out.size,
	       (unsigned long long)stream->out.sent,
	       (unsigned long long)stream->out.freed, stream->out.receives,
	       (unsigned long long)stream->out.spent,
	       (unsigned long long)stream->out.returned);
	printf("  in: size %llu arrived %llu consumed %llu told %llu, receives %u met %llu "
	       "taken %llu told %llu data %llu missing %u\n",
	       (unsigned long long)stream->in.size,
	       (unsigned long long)stream->in.arrived,
	       (unsigned long long)stream->in.consumed,
	       (unsigned long long)stream->in.told, stream->in.receives,
	       (unsigned long long)stream->in.met, (unsigned long long)stream->in.taken,
	       (unsigned long long)stream->in.taken_told,
	       (unsigned long long)stream->in.data_taken, stream->recv_missing);
}

/* Until both are done, or neither makes progress. */
static const char *play(void)
{
	uint64_t since = 0, last = UINT64_MAX;
	uint32_t turns = 0;

	while (!run.fault && !(is_done(&run.side[0]) && is_done(&run.side[1]))) {
		bool idle, may;

		if (turns++ > OPS_MAX)
			return "it takes too many turns";
		if (run.ops < run.plan->ops)
			turn();
		else
			return NULL;
		may = may_act(&run.side[0]) || may_act(&run.side[1]) || awaits_accept();
		idle = !world_step(&run.world,
				   world_now(&run.world) + (may ? US : PATIENCE));
		if (progress() != last) {
			last = progress();
			since = world_now(&run.world);
			continue;
		}
		if (may)
			continue;
		if (!idle && world_now(&run.world) - since <= PATIENCE)
			continue;
		say_state(&run.side[0]);
		say_state(&run.side[1]);
		return run.struck ? "an end does not notice"
				  : "both ends wait for ever";
	}
	return run.fault;
}

/* What is left is read; then all must be there. */
static void drain(struct side *side)
{
	side->waits_read = side->owes_read = false;
	while (!run.fault && stream_of(side) && !side->ended && !side->failed &&
	       !side->waits_read)
		do_read(side);
}

/* Its peer has gone before it was accepted. */
static void accept_dead(void)
{
	uint64_t until = world_now(&run.world) + PATIENCE;

	if (!run.queued)
		return;
	while (world_step(&run.world, until))
		;
	accept_queued();
	if (run.queued && run.side[0].arrived)
		wrong("%llu bytes had arrived, and the reader is gone",
		      (unsigned long long)run.side[0].arrived);
}

static void judge_side(struct side *side)
{
	struct snt_stream_info info = { .size = sizeof(info) };

	if (!stream_of(side))
		return;
	snt_stream_query(stream_of(side), &info);
	if (info.receives_most > info.receives_granted && !run.lie)
		wrong("end %u: %llu receives used, of %llu", side->index,
		      (unsigned long long)info.receives_most,
		      (unsigned long long)info.receives_granted);
	drain(side);
	if (run.struck) {
		/* Mostly with -EPROTO, or the liar is confused first. */
		if (is_lied_to(side) && side->over && !run.late && !info.status)
			wrong("end %u believes a liar: %d, %s", side->index,
			      info.status, info.text);
		return;
	}
	if (!side->ended || side->read != run.side[!side->index].goal)
		wrong("end %u has %llu bytes of %llu", side->index,
		      (unsigned long long)side->read,
		      (unsigned long long)run.side[!side->index].goal);
	if (info.status)
		wrong("end %u ends with %d, %s", side->index, info.status, info.text);
}

static const char *close_all(void)
{
	const char *text;
	uint64_t rnr = world_rnr(&run.world);

	if (rnr && !run.lie)
		return "a receiver was not ready";
	/* An end that has not come by now is not to come any more. */
	snt_stream_listener_destroy(run.world.listener);
	run.world.listener = NULL;
	for (unsigned i = 0; i < 2; i++) {
		struct world_end *end = &run.world.end[i];

		run.side[i].gone = true;
		snt_stream_destroy(end->stream);
		end->stream = NULL;
	}
	/* Sends that were under way are released first, and their memory then. */
	for (unsigned i = 0; i < 2; i++) {
		uint64_t until = world_now(&run.world) + PATIENCE;
		struct side *side = &run.side[i];

		for (bool goes_on = true; side->released < side->registered;) {
			if (!goes_on)
				return "a send is never released";
			goes_on = world_step(&run.world, until);
		}
		if (snt_mem_release(side->mem))
			return "memory is still in use";
		free(side->memory);
	}
	run.struck = true;
	search_count(run.world.sim);
	text = world_close(&run.world);
	return text ? text : run.fault;
}

static const char *play_all(void)
{
	const char *text =
		world_open(&run.world, false, run.plan->seed, run.plan->capture);

	run.world.by_card = dice(10) != 0;
	run.world.polls = run.world.by_card && dice(4) != 0;
	run.queued = !run.world.by_card && dice(2);
	run.accept_in = run.queued ? dice(400) : 0;
	run.strike_in = run.queued && dice(4) ? dice(run.accept_in + 1) : run.accept_in;
	if (!text)
		text = chance_add_devices(&run.world, run.plan, &run.random);
	if (!text)
		text = world_ready(&run.world);
	if (run.queued)
		run.world.listen.accepted = NULL;
	for (unsigned i = 0; !text && i < 2; i++)
		text = make_side(i);
	if (text)
		return text;
	chance_choose_opts(&run.world, &run.random);
	for (unsigned i = 0; i < 2; i++) {
		run.world.end[i].opts.ready = happened;
		run.world.end[i].opts.arg = &run.side[i];
	}
	choose_faults();
	text = world_connect(&run.world);
	if (!text)
		text = play();
	if (text)
		return text;
	if (run.ops < run.plan->ops) {
		accept_dead();
		for (unsigned i = 0; i < 2; i++)
			judge_side(&run.side[i]);
	}
	run.struck |= run.ops >= run.plan->ops;
	return run.fault ? run.fault : close_all();
}

static int play_seed(const struct search_plan *plan)
{
	const char *text;

	memset(&run, 0, sizeof(run));
	run.plan = plan;
	run.random = plan->seed * 2 + 1;
	text = play_all();
	return text ? search_wrong("%s", text) : 0;
}

int main(int argc, char **argv)
{
	const struct search search = {
		.kinds = kinds,
		.ops_max = OPS_MAX,
		.seeds_default = 500,
		.run = play_seed,
	};

	return search_main(argc, argv, &search);
}
