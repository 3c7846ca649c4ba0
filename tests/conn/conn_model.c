/* SPDX-License-Identifier: MIT */
/*
 * Everything that can happen to a connection, for small cases: both ends, each message
 * delivered, doubled or lost with the carrier, each end crashing, giving up, refusing
 * or running out of something, at any time; a message of an earlier connection at any
 * time. All states that can be reached are visited, and in each the rules are checked.
 */
#include <stdlib.h>

#include "lib/conn_ends.h"

#define QUEUE_MAX   4
#define MESSAGE_MAX 1024
#define DEPTH_MAX   200

/* What an end still has to do. */
enum duty {
	IDLE,
	ASKED,
	PROBE_QPS,
	VERDICTS,
	QP,
	CONNECT,
};

struct queue {
	unsigned count;
	uint16_t length[QUEUE_MAX];
	uint8_t bytes[QUEUE_MAX][MESSAGE_MAX];
};

struct end {
	struct snt__handshake hs;
	struct queue in;
	uint8_t duty;
	bool crashed;
	bool told_lost; /* of a carrier that broke */
	bool was_up;
	bool ended; /* DO_END has come */
	bool left;  /* the program has said goodbye */
};

struct world {
	struct end end[2];
	bool cut; /* the carrier is broken */
	/* What went wrong, so that a failure has an excuse. */
	bool fault;
	uint8_t doubles, strays, leaves;
};

struct model {
	const char *name;
	const char *secret;
	unsigned devices;
	struct snt__offer offer[2];
	/* Messages of an earlier connection, in the order they were sent. */
	unsigned stray_count;
	struct {
		uint16_t length;
		uint8_t to;
		uint8_t bytes[MESSAGE_MAX];
	} stray[16];

	uint64_t *visited;
	size_t room, count;
	uint64_t both_up, both_over;
	char path[DEPTH_MAX][40];
	unsigned depth;
};

static struct model model;

/*
 * Failing, with the way that led there
 */

static _Noreturn void complain(const char *what)
{
	printf("not ok - %s\n# %s, after:\n", model.name, what);
	for (unsigned i = 0; i < model.depth; i++)
		printf("#   %s\n", model.path[i]);
	exit(1);
}

static void demand(bool condition, const char *what)
{
	if (!condition)
		complain(what);
}

/*
 * States that were seen
 */

static uint64_t hash_of(const struct world *world)
{
	const uint64_t *at = (const uint64_t *)world;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < sizeof(*world) / sizeof(*at); i++) {
		hash = (hash ^ at[i]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return hash | 1;
}

static bool is_new(const struct world *world)
{
	uint64_t hash = hash_of(world);
	size_t at = hash & (model.room - 1);

	while (model.visited[at]) {
		if (model.visited[at] == hash)
			return false;
		at = (at + 1) & (model.room - 1);
	}
	model.visited[at] = hash;
	demand(++model.count < model.room / 2, "too many states");
	return true;
}

/*
 * What happens
 */

static void push(struct queue *queue, const uint8_t *bytes, size_t length)
{
	demand(queue->count < QUEUE_MAX, "an end talks too much");
	demand(length <= MESSAGE_MAX, "a message is too long");
	memset(queue->bytes[queue->count], 0, MESSAGE_MAX);
	memcpy(queue->bytes[queue->count], bytes, length);
	queue->length[queue->count++] = (uint16_t)length;
}

static void drop(struct queue *queue)
{
	queue->count--;
	memmove(queue->bytes[0], queue->bytes[1], (QUEUE_MAX - 1) * MESSAGE_MAX);
	memmove(queue->length, queue->length + 1,
		(QUEUE_MAX - 1) * sizeof(queue->length[0]));
	memset(queue->bytes[QUEUE_MAX - 1], 0, MESSAGE_MAX);
	queue->length[QUEUE_MAX - 1] = 0;
}

static void take_action(struct end *end)
{
	switch (snt__handshake_action(&end->hs)) {
	case SNT__DO_ASK:
		end->duty = ASKED;
		break;
	case SNT__DO_PROBE_QPS:
		end->duty = PROBE_QPS;
		break;
	case SNT__DO_PROBE:
		end->duty = VERDICTS;
		break;
	case SNT__DO_MAKE:
		end->duty = QP;
		break;
	case SNT__DO_CONNECT:
		end->duty = CONNECT;
		break;
	case SNT__DO_UP:
		demand(!end->was_up, "up twice");
		end->was_up = true;
		break;
	case SNT__DO_END:
		demand(!end->ended, "over twice");
		end->ended = true;
		end->duty = IDLE;
		break;
	case SNT__DO_LEAVE:
	case SNT__DO_NOTHING:
		break;
	}
}

/* Whatever has to be done at once: messages go out, actions are taken. */
static void settle(struct world *world, unsigned which)
{
	struct end *end = &world->end[which];
	struct end *other = &world->end[!which];
	uint8_t bytes[SNT__MESSAGE_MAX];
	size_t length;

	take_action(end);
	while ((length = snt__handshake_output(&end->hs, bytes)))
		if (!world->cut && !other->crashed)
			push(&other->in, bytes, length);
}

static void check(const struct world *world)
{
	const struct snt__handshake *a = &world->end[0].hs, *b = &world->end[1].hs;

	for (unsigned i = 0; i < 2; i++) {
		const struct end *end = &world->end[i];

		demand(snt__handshake_over(&end->hs) == end->ended,
		       "over without being told, or the other way round");
		demand(!end->ended || !end->duty, "over, and still at work");
		demand(end->ended || end->was_up == (end->hs.state == SNT__HS_UP),
		       "up without being told");
		demand(!end->ended || !end->hs.error || end->hs.text[0],
		       "no word of why it is over");
		demand(!end->ended || !end->hs.error || world->fault,
		       "failed without a reason");
	}
	/* The acceptor is the last to be up. */
	demand(!world->end[1].was_up || world->end[0].was_up, "up without a peer");
	if (world->end[0].was_up && world->end[1].was_up)
		demand(!ends_fault(a, b), ends_fault(a, b));
}

/* Nothing more will happen by itself, but for time. */
static void check_rest(const struct world *world)
{
	const struct end *a = &world->end[0], *b = &world->end[1];

	if (a->crashed || b->crashed)
		return;
	demand(a->ended == b->ended, "one is over, and the other does not know");
	if (a->ended) {
		model.both_over++;
		return;
	}
	demand(a->was_up && b->was_up, "both wait for each other");
	model.both_up++;
}

static void visit(const struct world *world);

static struct world *begin(const struct world *from, const char *format, unsigned which)
{
	struct world *world = malloc(sizeof(*world));

	if (!world)
		abort();
	*world = *from;
	demand(model.depth < DEPTH_MAX, "too deep");
	snprintf(model.path[model.depth++], sizeof(model.path[0]), format, which);
	return world;
}

static void finish(struct world *world, unsigned which)
{
	settle(world, which);
	check(world);
	visit(world);
	model.depth--;
	free(world);
}

static void deliver(const struct world *from, unsigned which, bool twice)
{
	struct world *world = begin(from,
				    twice ? "a message comes to %u, and stays"
					  : "a message comes to %u",
				    which);
	struct end *end = &world->end[which];

	if (twice) {
		world->doubles++;
		world->fault = true;
	}
	snt__handshake_input(&end->hs, end->in.bytes[0], end->in.length[0], 0);
	if (!twice)
		drop(&end->in);
	finish(world, which);
}

static void stray(const struct world *from, unsigned which, unsigned number)
{
	struct world *world = begin(from, "an old message comes to %u", which);

	world->strays++;
	world->fault = true;
	snt__handshake_input(&world->end[which].hs, model.stray[number].bytes,
			     model.stray[number].length, 0);
	finish(world, which);
}

/* An answer to what the engine wanted: well, or not. */
static void work(const struct world *from, unsigned which, bool well)
{
	struct world *world =
		begin(from, well ? "%u does its duty" : "%u cannot", which);
	struct end *end = &world->end[which];
	struct snt__handshake *hs = &end->hs;
	uint8_t duty = end->duty;
	struct snt_card card;

	end->duty = IDLE;
	world->fault |= !well;
	if (duty == PROBE_QPS) {
		ends_probe_qps(hs, well ? SNT__VERDICT_NONE : SNT__VERDICT_RESOURCES);
		end->duty = hs->connects ? IDLE : VERDICTS;
	} else if (duty == VERDICTS) {
		ends_probed(hs, well ? SNT__VERDICT_GOOD : SNT__VERDICT_SILENT);
	} else if (!well) {
		snt__handshake_end(hs, SNT__END_REFUSED, -1, "no", "data", 4);
	} else if (duty == ASKED) {
		snt__handshake_accept(hs, &model.offer[which]);
	} else if (duty == QP) {
		card = ends_card(hs);
		snt__handshake_card(hs, &card);
	} else {
		snt__handshake_connected(hs, 0);
	}
	finish(world, which);
}

static void leave(const struct world *from, unsigned which, bool abruptly)
{
	struct world *world =
		begin(from, abruptly ? "%u aborts" : "%u says goodbye", which);

	if (abruptly) {
		world->leaves++;
		world->fault = true;
		snt__handshake_end(&world->end[which].hs, SNT__END_ABORTED, -1, "abort",
				   NULL, 0);
	} else {
		world->end[which].left = true;
		snt__handshake_bye(&world->end[which].hs);
	}
	finish(world, which);
}

static void time_out(const struct world *from, unsigned which)
{
	struct world *world = begin(from, "time is up for %u", which);

	world->fault = true;
	snt__handshake_timer(&world->end[which].hs, ENDS_DEADLINE);
	finish(world, which);
}

static void crash(const struct world *from, unsigned which)
{
	struct world *world = begin(from, "%u crashes", which);

	world->end[which].crashed = true;
	world->cut = world->fault = true;
	check(world);
	visit(world);
	model.depth--;
	free(world);
}

static void cut(const struct world *from)
{
	struct world *world = begin(from, "the carrier breaks", 0);

	world->cut = world->fault = true;
	check(world);
	visit(world);
	model.depth--;
	free(world);
}

/* What was under way may come first, or not. An end that is over closes the carrier,
 * and has said why before, unless it never identified its peer. */
static void lose(const struct world *from, unsigned which)
{
	struct world *world = begin(from, "%u notices", which);

	demand(from->cut || !from->end[!which].hs.peer_hello.identity,
	       "the carrier is closed without a word");
	memset(&world->end[which].in, 0, sizeof(world->end[which].in));
	world->end[which].told_lost = true;
	snt__handshake_lost(&world->end[which].hs, -1, NULL);
	finish(world, which);
}

static bool visit_end(const struct world *world, unsigned which)
{
	const struct end *end = &world->end[which];
	bool setup = end->hs.state < SNT__HS_UP;
	bool moved = false;

	if (end->crashed)
		return false;
	if (end->in.count && !end->told_lost) {
		deliver(world, which, false);
		moved = true;
	}
	if (end->duty) {
		work(world, which, true);
		work(world, which, false);
		moved = true;
	}
	if (!end->told_lost && (world->cut || (world->end[!which].ended &&
					       !end->ended && !end->in.count))) {
		lose(world, which);
		moved = true;
	}
	if (end->in.count && !end->told_lost && !world->doubles)
		deliver(world, which, true);
	for (unsigned i = 0; i < model.stray_count && !world->strays; i++)
		if (model.stray[i].to == which && !end->ended)
			stray(world, which, i);
	if (end->hs.state == SNT__HS_UP && !end->left)
		leave(world, which, false);
	if (!end->ended && !world->leaves)
		leave(world, which, true);
	if (setup)
		time_out(world, which);
	if (!world->cut)
		crash(world, which);
	return moved;
}

static void visit(const struct world *world)
{
	bool moved;

	if (!is_new(world))
		return;
	moved = visit_end(world, 0);
	moved |= visit_end(world, 1);
	if (!world->cut)
		cut(world);
	if (!moved)
		check_rest(world);
}

/*
 * Cases
 */

static void start(struct world *world, unsigned salt)
{
	memset(world, 0, sizeof(*world));
	ends_init(&world->end[0].hs, 0, salt, &model.offer[0], model.secret);
	ends_init(&world->end[1].hs, 1, salt, NULL, model.secret);
}

/* One connection in which all goes well, whose messages are kept. */
static void record(void)
{
	struct world *world = malloc(sizeof(*world));
	uint8_t bytes[SNT__MESSAGE_MAX];
	bool moved = true;

	if (!world)
		abort();
	start(world, 3);
	while (moved) {
		moved = false;
		for (unsigned i = 0; i < 2; i++) {
			size_t length = snt__handshake_output(&world->end[i].hs, bytes);

			if (!length)
				continue;
			moved = true;
			model.stray[model.stray_count].length = (uint16_t)length;
			model.stray[model.stray_count].to = !i;
			memcpy(model.stray[model.stray_count++].bytes, bytes, length);
			snt__handshake_input(&world->end[!i].hs, bytes, length, 0);
			while (ends_answer(&world->end[!i].hs, &model.offer[1]))
				;
		}
	}
	demand(world->end[0].hs.state == SNT__HS_UP &&
		       world->end[1].hs.state == SNT__HS_UP,
	       "two ends alone do not get connected");
	free(world);
}

static void explore(unsigned number, const char *name, const char *secret,
		    unsigned devices, bool strays)
{
	struct world *world = malloc(sizeof(*world));

	if (!world)
		abort();
	model = (struct model){ .name = name, .secret = secret, .room = 1u << 22 };
	model.visited = calloc(model.room, sizeof(*model.visited));
	if (!model.visited)
		abort();
	for (unsigned i = 0; i < 2; i++)
		model.offer[i] = ends_offer(i, devices);
	record();
	if (!strays)
		model.stray_count = 0;
	start(world, 0);
	settle(world, 0);
	visit(world);
	demand(model.both_up, "no seed gets connected");
	demand(model.both_over, "no seed ends");
	printf("ok %u - %s: %zu states, %llu at rest connected, %llu over\n", number,
	       name, model.count, (unsigned long long)model.both_up,
	       (unsigned long long)model.both_over);
	free(model.visited);
	free(world);
}

/* --quick: for builds that are slow; without messages of earlier connections. */
int main(int argc, char **argv)
{
	bool quick = argc > 1 && !strcmp(argv[1], "--quick");
	bool crypto = snt__mac_available();

	printf("1..%u\n", 1 + !quick + crypto);
	explore(1, "one device at each end", NULL, 1, !quick);
	if (!quick)
		explore(2, "two devices at each end", NULL, 2, false);
	if (crypto)
		explore(2 + !quick, "with a secret", ends_secret, 1, !quick);
	return 0;
}
