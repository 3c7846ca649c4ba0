/* SPDX-License-Identifier: MIT */
/*
 * Channels on a bad fabric, against a model. Both ends send, offer, receive, fetch, drop,
 * flush and shut down as chance has it; an end that got -EAGAIN does not try again before
 * it is told to. A message's bytes are made of its number. Whatever happens, what is
 * received is a prefix of what was sent, whole messages in order; memory that was offered
 * is not read, and memory that was fetched to is not written, after it was given back; and
 * where nothing is broken on purpose, everything arrives, every offer is released, both
 * ends end well, no end waits for ever, and no device ever found a receiver that was not
 * ready.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "lib/search.h"
#include "lib/stream_chance.h"
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

#define US	  1000u
#define GOAL_MAX  200
#define SLOTS	  4
#define SLOT_SIZE 2048
#define OPS_MAX	  100000
#define PATIENCE  (UINT64_C(60000) * WORLD_MS)
#define FREED	  0xdd

/* Memory of one offer or fetch. */
struct slot {
	struct snt_offer offer;
	struct snt_fetch fetch;
	struct side *side;
	uint64_t number;
	uint8_t *bytes;
	bool busy;
};

struct sent {
	uint32_t length;
	bool is_offer;
};

/* One end, as the model knows it. */
struct side {
	unsigned index;
	uint32_t goal, sent, received;
	uint32_t arrived, flushing; /* of `sent`, known to be there; to be flushed */
	bool waits_read, waits_write, waits_flush;
	bool owes_read, owes_write; /* it was told: the next call must do something */
	bool shut, ended, failed, over, gone;
	uint32_t zeal; /* percent of its turns that it uses */
	bool acts_inside;
	unsigned offered, released, fetching, fetched;
	uint32_t wanted; /* the length that was refused */
	struct snt_mem *mem;
	uint8_t *memory;
	struct slot offers[SLOTS], fetches[SLOTS];
	struct snt_channel *channel;
	struct sent message[GOAL_MAX];
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
	const char *fault;
	char text[256];
} run;

static uint32_t dice(uint32_t sides)
{
	return random_below(&run.random, sides);
}

/* Rolls first, so that a run without one kind of fault is otherwise the same. */
static bool chance(enum kind kind, uint32_t percent)
{
	bool hit = dice(100) < percent;

	return hit && search_has(run.plan, kind);
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

static uint8_t byte_of(unsigned from, uint64_t number, uint64_t position)
{
	uint64_t mixed = position + number * 7919 + from * 1000003 + 1;

	return (uint8_t)(mixed * 0x9e3779b97f4a7c15 >> 56);
}

/* A peer that can lie about records can lie about bytes. */
static bool is_lied_to(const struct side *side)
{
	return run.lie && run.struck && side->index != run.victim;
}

static void check_message(struct side *side, uint64_t number, const uint8_t *bytes,
			  uint64_t length)
{
	if (is_lied_to(side))
		return;
	for (uint64_t i = 0; i < length; i++)
		if (bytes[i] != byte_of(!side->index, number, i)) {
			wrong("end %u: byte %llu of message %llu is another one",
			      side->index, (unsigned long long)i,
			      (unsigned long long)number);
			return;
		}
}

/*
 * Memory
 */

static struct slot *free_slot(struct slot *slots)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (!slots[i].busy)
			return &slots[i];
	return NULL;
}

static void give_back(struct slot *slot)
{
	slot->busy = false;
	memset(slot->bytes, FREED, SLOT_SIZE);
}

/* What was given back is not written to. */
static void check_slot(const struct side *side, const struct slot *slot)
{
	if (slot->busy)
		return;
	for (unsigned i = 0; i < SLOT_SIZE; i++)
		if (slot->bytes[i] != FREED) {
			wrong("end %u: memory is written after it was given back",
			      side->index);
			return;
		}
}

static void released(struct snt_offer *offer)
{
	struct slot *slot = offer->arg;

	if (!slot->busy)
		wrong("end %u: an offer is released twice", slot->side->index);
	if (offer->result && !run.struck)
		wrong("end %u: an offer is released with %d", slot->side->index,
		      offer->result);
	slot->side->released++;
	give_back(slot);
}

static void fetched(struct snt_fetch *fetch)
{
	struct slot *slot = fetch->arg;
	struct side *side = slot->side;

	if (!slot->busy)
		wrong("end %u: a fetch is done twice", side->index);
	if (fetch->result && !run.struck)
		wrong("end %u: a fetch ends with %d", side->index, fetch->result);
	if (!fetch->result)
		check_message(side, slot->number, slot->bytes, fetch->length);
	side->fetched++;
	give_back(slot);
}

/*
 * Receiving
 */

static void judge_end(struct side *side, int ret)
{
	const struct side *other = &run.side[!side->index];

	say("end %u: the end is %d (%s)\n", side->index, ret, snt_err_text());
	if (ret == -ESHUTDOWN) {
		side->ended = true;
		if (is_lied_to(side))
			return;
		if (!other->shut || side->received != other->sent)
			wrong("end %u: the end after %u of %u messages", side->index,
			      side->received, other->sent);
		if (other->offered != other->released && !other->gone &&
		    other->channel->offers)
			wrong("end %u: the end before an offer's", side->index);
		return;
	}
	side->failed = true;
	if (!run.struck)
		wrong("end %u: receiving fails with %d (%s)", side->index, ret,
		      snt_err_text());
	if (!run.lie && side->received < other->arrived)
		wrong("end %u fails after %u messages, and %u had arrived", side->index,
		      side->received, other->arrived);
}

static int receive(struct side *side, const struct snt_channel_message *message)
{
	uint8_t buffer[8192];
	ssize_t ret = snt_channel_recv(side->channel, buffer, sizeof(buffer));

	if (ret < 0)
		return (int)ret;
	if ((uint64_t)ret != message->length)
		wrong("end %u: another length", side->index);
	check_message(side, side->received, buffer, (uint64_t)ret);
	return 0;
}

static int look_and_drop(struct side *side, const struct snt_channel_message *message)
{
	uint8_t buffer[8192];

	memcpy(buffer, message->bytes[0].iov_base, message->bytes[0].iov_len);
	memcpy(buffer + message->bytes[0].iov_len, message->bytes[1].iov_base,
	       message->bytes[1].iov_len);
	check_message(side, side->received, buffer, message->length);
	return snt_channel_drop(side->channel);
}

static int fetch(struct side *side)
{
	struct slot *slot = free_slot(side->fetches);
	int ret;

	if (!slot || dice(8) == 0)
		return snt_channel_drop(side->channel);
	slot->number = side->received;
	slot->fetch = (struct snt_fetch){ .mem = side->mem,
					  .addr = slot->bytes,
					  .size = SLOT_SIZE,
					  .done = fetched,
					  .arg = slot };
	slot->busy = true;
	ret = snt_channel_fetch(side->channel, &slot->fetch);
	if (ret)
		slot->busy = false;
	else
		side->fetching++;
	return ret;
}

static int take_message(struct side *side)
{
	const struct sent *sent = &run.side[!side->index].message[side->received];
	struct snt_channel_message message;
	int ret = snt_channel_peek(side->channel, &message);

	if (ret)
		return ret;
	if (!is_lied_to(side) &&
	    (side->received >= run.side[!side->index].sent ||
	     message.length != sent->length || !message.is_offer == sent->is_offer))
		wrong("end %u: message %u is another one", side->index, side->received);
	if (is_lied_to(side) && message.is_offer)
		return snt_channel_drop(side->channel);
	if (message.is_offer) {
		ret = fetch(side);
		/* A channel that has failed keeps the offer, which can be dropped. */
		return ret && ret != -EAGAIN ? snt_channel_drop(side->channel) : ret;
	}
	return dice(3) ? receive(side, &message) : look_and_drop(side, &message);
}

static void do_receive(struct side *side)
{
	int ret = take_message(side);

	say("%llu end %u receives %u: %d\n", (unsigned long long)world_now(&run.world),
	    side->index, side->received, ret);
	if (ret == -EAGAIN) {
		if (side->owes_read && !run.struck)
			wrong("end %u is told to receive, and there is nothing",
			      side->index);
		side->waits_read = true;
		return;
	}
	side->owes_read = false;
	if (!ret)
		side->received++;
	else
		judge_end(side, ret);
}

/*
 * Sending
 */

static uint32_t choose_length(const struct side *side)
{
	uint64_t most = snt__chan_send_max(side->channel);

	if (side->owes_write)
		return side->wanted;
	if (dice(10) == 0 || !most)
		return (uint32_t)most;
	return dice((uint32_t)most >> dice(4));
}

static int send_copy(struct side *side, uint32_t length)
{
	static uint8_t buffer[8192];
	uint32_t first = dice(length + 1);
	struct iovec iov[] = { { buffer, first }, { buffer + first, length - first } };

	for (uint32_t i = 0; i < length; i++)
		buffer[i] = byte_of(side->index, side->sent, i);
	side->wanted = length;
	if (dice(3))
		return snt_channel_send(side->channel, buffer, length);
	return snt_channel_sendv(side->channel, iov, 2);
}

static int make_offer(struct side *side, struct slot *slot, uint32_t length)
{
	int ret;

	for (uint32_t i = 0; i < length; i++)
		slot->bytes[i] = byte_of(side->index, side->sent, i);
	slot->offer = (struct snt_offer){ .mem = side->mem,
					  .addr = slot->bytes,
					  .length = length,
					  .released = released,
					  .arg = slot };
	slot->busy = true;
	ret = snt_channel_offer(side->channel, &slot->offer);
	if (ret)
		give_back(slot);
	else
		side->offered++;
	/* 56 bytes of the ring, without the header. */
	side->wanted = 48;
	return ret;
}

static void do_send(struct side *side)
{
	uint32_t length = choose_length(side);
	struct slot *slot = dice(3) ? NULL : free_slot(side->offers);
	bool is_offer = slot && !side->owes_write;
	int ret;

	if (is_offer)
		length = 1 + dice(SLOT_SIZE);
	ret = is_offer ? make_offer(side, slot, length) : send_copy(side, length);
	say("%llu end %u sends %u, %u bytes%s: %d\n",
	    (unsigned long long)world_now(&run.world), side->index, side->sent, length,
	    is_offer ? " offered" : "", ret);
	if (ret == -EAGAIN) {
		if (side->owes_write && !run.struck)
			wrong("end %u is told to send, and there is no room",
			      side->index);
		side->waits_write = true;
		return;
	}
	side->owes_write = false;
	if (!ret) {
		side->message[side->sent++] = (struct sent){ length, is_offer };
		return;
	}
	side->failed = true;
	if (!run.struck)
		wrong("end %u: sending fails with %d (%s)", side->index, ret,
		      snt_err_text());
}

static void do_flush(struct side *side)
{
	int ret = snt_channel_flush(side->channel);

	say("end %u flushes: %d\n", side->index, ret);
	if (!ret) {
		side->arrived = side->sent;
	} else if (ret == -EAGAIN) {
		side->waits_flush = true;
		side->flushing = side->sent;
	} else {
		side->failed = true;
		if (!run.struck)
			wrong("end %u: flush fails with %d", side->index, ret);
	}
}

static void do_shutdown(struct side *side)
{
	int ret = snt_channel_shutdown(side->channel);

	say("end %u shuts down: %d\n", side->index, ret);
	side->shut = true;
	if (ret && !run.struck)
		wrong("end %u: shutdown fails with %d (%s)", side->index, ret,
		      snt_err_text());
}

/*
 * Turns
 */

static bool may_act(const struct side *side)
{
	if (side->gone || !side->channel || side->over)
		return false;
	if (!side->ended && !side->failed && !side->waits_read)
		return true;
	/* An end that flushes does so to the end before it shuts down. */
	return !side->shut && !side->failed &&
	       !(side->sent < side->goal ? side->waits_write : side->waits_flush);
}

static void act(struct side *side)
{
	uint32_t what = dice(100);
	bool may_send = !side->shut && !side->failed;

	if (side->gone || !side->channel)
		return;
	if (what < 5 && may_send && !side->waits_flush)
		do_flush(side);
	else if (what < 50 && !side->ended && !side->failed && !side->waits_read)
		do_receive(side);
	else if (may_send && side->sent < side->goal && !side->waits_write)
		do_send(side);
	else if (may_send && side->sent == side->goal && !side->waits_flush)
		do_shutdown(side);
	else if (!side->ended && !side->failed && !side->waits_read)
		do_receive(side);
}

static void strike(struct side *side);

static void happened(void *arg, struct snt_channel *channel, unsigned events)
{
	struct side *side = arg;

	say("%llu end %u: events 0x%x\n", (unsigned long long)world_now(&run.world),
	    side->index, events);
	if (channel != side->channel || side->gone)
		wrong("end %u: told after it was destroyed", side->index);
	if (events & SNT_CHANNEL_READABLE) {
		side->waits_read = false;
		side->owes_read = true;
	}
	if (events & SNT_CHANNEL_WRITABLE) {
		side->waits_write = false;
		side->owes_write = true;
	}
	if (events & SNT_CHANNEL_FLUSHED) {
		side->waits_flush = false;
		if (!snt__stream_has_failed(channel->stream) &&
		    side->flushing > side->arrived)
			side->arrived = side->flushing;
	}
	if (events & SNT_CHANNEL_OVER) {
		if (side->over)
			wrong("end %u: over twice", side->index);
		side->over = true;
	}
	if (!run.struck && run.destroy && side->index == run.victim && dice(4) == 0 &&
	    run.ops > run.when)
		strike(side);
	for (uint32_t i = side->acts_inside ? dice(4) : 0; i && !side->gone; i--)
		act(side);
}

/*
 * Faults
 */

/* A record that no honest end writes. */
static void write_record(struct snt_channel *channel, struct snt__record_header header,
			 uint64_t body)
{
	static const uint8_t bytes[64] = { 1, 2, 3 };
	const struct iovec iov[] = { { &header, sizeof(header) },
				     { (void *)(uintptr_t)bytes, body } };

	run.late |= snt_stream_writev(channel->stream, iov, 2) !=
		    (ssize_t)(sizeof(header) + body);
}

static void lie(struct side *side)
{
	struct snt_channel *channel = side->channel;
	struct snt_stream *stream = channel->stream;
	struct snt__record_header header = snt__record_pack(SNT__RECORD_MESSAGE, 0);
	uint32_t what = dice(5);

	say("lie %u\n", what);
	switch (what) {
	case 0: /* a longer message than the ring allows */
		write_record(channel,
			     snt__record_pack(SNT__RECORD_MESSAGE, stream->out.size),
			     0);
		break;
	case 1: /* greets again */
		write_record(channel, snt__record_pack(SNT__RECORD_HELLO, 8), 8);
		break;
	case 2: /* an offer of nothing */
		write_record(channel, snt__record_pack(SNT__RECORD_OFFER, 48), 48);
		break;
	case 3: /* is done with offers that were not made */
		if (channel->shut)
			run.late = true;
		snt__stream_note(stream,
				 (channel->finished + 100000) & SNT__IMM_NUMBER);
		break;
	default:
		header.type = 77;
		write_record(channel, header, 0);
	}
}

static void strike(struct side *side)
{
	struct world_end *end = &run.world.end[side->index];

	if (!side->channel)
		return;
	say("%llu end %u strikes (%d%d%d%d)\n",
	    (unsigned long long)world_now(&run.world), side->index, run.abort,
	    run.destroy, run.cut, run.lie);
	if (run.lie && (!end->stream->opened || run.side[!side->index].over))
		return;
	run.struck = true;
	run.late = side->shut || side->failed;
	if (run.cut)
		for (unsigned i = 0; i < end->devices; i++)
			snt__sim_device_cut(end->device[i], true);
	if (run.abort)
		snt_channel_abort(side->channel, "as planned");
	if (run.lie)
		lie(side);
	if (!run.destroy)
		return;
	side->gone = true;
	snt_channel_destroy(side->channel);
	side->channel = NULL;
	end->stream = NULL;
}

/*
 * The world
 */

static void make_slots(struct side *side)
{
	for (unsigned i = 0; i < 2 * SLOTS; i++) {
		struct slot *slot =
			i < SLOTS ? &side->offers[i] : &side->fetches[i - SLOTS];

		slot->side = side;
		slot->bytes = side->memory + i * SLOT_SIZE;
		give_back(slot);
	}
}

static const char *make_side(unsigned index)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_READ;
	struct side *side = &run.side[index];

	side->index = index;
	side->goal = dice(8) ? dice(GOAL_MAX >> dice(6)) : 0;
	side->zeal = dice(3) ? 20 + dice(80) : 2 + dice(6);
	side->acts_inside = dice(2);
	side->waits_read = side->waits_write = true;
	side->memory = malloc(2 * SLOTS * SLOT_SIZE);
	if (snt_mem_register(run.world.end[index].ctx, side->memory,
			     2 * SLOTS * SLOT_SIZE, access, &side->mem))
		return "no memory";
	make_slots(side);
	return NULL;
}

static const char *make_channels(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &run.side[i];
		const struct snt_channel_opts opts =
			SNT_INIT(opts, .ready = happened, .arg = side);

		if (side->channel || !run.world.end[i].stream)
			continue;
		if (snt_channel_create(run.world.end[i].stream, &opts, &side->channel))
			return "no channel";
		side->channel->read_length = 64 << dice(6);
		/* Told when it is open. */
		side->waits_write = true;
		side->channel->wants |= SNT_CHANNEL_WRITABLE;
		side->channel->wanted = 0;
		side->wanted = 0;
	}
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

/*
 * Playing
 */

static uint64_t progress(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < 2; i++) {
		const struct side *side = &run.side[i];

		sum += side->received + side->sent + side->shut + side->ended +
		       side->over + side->gone + side->released + side->failed +
		       side->fetched;
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
	       ((run.world.by_card && (run.cut || run.lie)) || !side->channel);
}

static void turn(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &run.side[i];

		if (dice(100) < side->zeal)
			act(side);
	}
	run.ops++;
	if (!run.struck && (run.abort || run.destroy || run.cut || run.lie) &&
	    run.ops >= run.when)
		strike(&run.side[run.victim]);
}

static void say_state(const struct side *side)
{
	const struct snt_channel *channel = side->channel;

	if (!channel || !run.plan->verbose)
		return;
	printf("end %u: %u of %u sent, %u received, shut %d, waits %d%d%d, offers %u "
	       "released %u fetching %u done %u\n",
	       side->index, side->sent, side->goal, side->received, side->shut,
	       side->waits_read, side->waits_write, side->waits_flush, side->offered,
	       side->released, side->fetching, side->fetched);
	printf("  channel: look %d, offers %u, finished %u, wanted %llu, room %llu\n",
	       channel->look, channel->offers, channel->finished,
	       (unsigned long long)channel->wanted,
	       (unsigned long long)snt__chan_room(channel));
	printf("  stream: note %u sent %u, note_end %llu returned %llu others %u, owes "
	       "%d, wrs %u of %u\n",
	       channel->stream->note, channel->stream->note_sent,
	       (unsigned long long)channel->stream->out.note_end,
	       (unsigned long long)channel->stream->out.returned,
	       channel->stream->out.others, channel->stream->in.owes,
	       channel->stream->wrs, channel->stream->wr_limit);
}

/* Until both are done, or neither makes progress. */
static const char *play(void)
{
	uint64_t since = 0, last = UINT64_MAX;
	uint32_t turns = 0;

	while (!run.fault && !(is_done(&run.side[0]) && is_done(&run.side[1]))) {
		const char *text = make_channels();
		bool idle, may;

		if (text)
			return text;
		if (turns++ > OPS_MAX)
			return "it takes too many turns";
		if (run.ops >= run.plan->ops)
			return NULL;
		turn();
		may = may_act(&run.side[0]) || may_act(&run.side[1]);
		idle = !world_step(&run.world,
				   world_now(&run.world) + (may ? US : PATIENCE));
		if (progress() != last) {
			last = progress();
			since = world_now(&run.world);
			continue;
		}
		if (may || (!idle && world_now(&run.world) - since <= PATIENCE))
			continue;
		say_state(&run.side[0]);
		say_state(&run.side[1]);
		return run.struck ? "an end does not notice"
				  : "both ends wait for ever";
	}
	return run.fault;
}

static void judge_side(struct side *side)
{
	struct snt_channel_info info = { .size = sizeof(info) };

	if (!side->channel)
		return;
	snt_channel_query(side->channel, &info);
	side->waits_read = side->owes_read = false;
	while (!run.fault && !side->ended && !side->failed && !side->waits_read)
		do_receive(side);
	if (run.struck) {
		/* Mostly with -EPROTO, or the liar is confused first. */
		snt_channel_query(side->channel, &info);
		if (is_lied_to(side) && side->over && !run.late && !info.status)
			wrong("end %u believes a liar: %d, %s", side->index,
			      info.status, info.text);
		return;
	}
	if (!side->ended || side->received != run.side[!side->index].goal)
		wrong("end %u has %u messages of %u", side->index, side->received,
		      run.side[!side->index].goal);
	if (side->offered != side->released || side->fetching != side->fetched)
		wrong("end %u: an offer or a fetch has no end", side->index);
	if (info.status)
		wrong("end %u ends with %d, %s", side->index, info.status, info.text);
}

static const char *end_side(struct side *side)
{
	uint64_t until = world_now(&run.world) + PATIENCE;
	bool goes_on = true;

	while (side->released < side->offered || side->fetched < side->fetching) {
		if (!goes_on)
			return "an offer or a fetch never ends";
		goes_on = world_step(&run.world, until);
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		check_slot(side, &side->offers[i]);
		check_slot(side, &side->fetches[i]);
	}
	if (snt_mem_release(side->mem))
		return "memory is still in use";
	free(side->memory);
	return NULL;
}

static const char *close_all(void)
{
	const char *text = NULL;

	if (world_rnr(&run.world) && !run.lie)
		return "a receiver was not ready";
	run.struck = true;
	for (unsigned i = 0; i < 2; i++) {
		run.side[i].gone = true;
		snt_channel_destroy(run.side[i].channel);
		if (run.side[i].channel)
			run.world.end[i].stream = NULL;
	}
	for (unsigned i = 0; !text && i < 2; i++)
		text = end_side(&run.side[i]);
	search_count(run.world.sim);
	if (!text)
		text = world_close(&run.world);
	return text ? text : run.fault;
}

static const char *play_all(void)
{
	const char *text =
		world_open(&run.world, false, run.plan->seed, run.plan->capture);

	run.world.by_card = dice(10) != 0;
	run.world.polls = run.world.by_card && dice(4) != 0;
	if (!text)
		text = chance_add_devices(&run.world, run.plan, &run.random);
	if (!text)
		text = world_ready(&run.world);
	for (unsigned i = 0; !text && i < 2; i++)
		text = make_side(i);
	if (text)
		return text;
	chance_choose_opts(&run.world, &run.random);
	choose_faults();
	text = world_connect(&run.world);
	if (!text)
		text = play();
	if (text)
		return text;
	if (run.ops < run.plan->ops)
		for (unsigned i = 0; i < 2; i++)
			judge_side(&run.side[i]);
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
