/* SPDX-License-Identifier: MIT */
/*
 * The life of a connection, from its CQs to its end, again and again, with one call
 * failing each time: every control call, every post in every way in which a device
 * can refuse, every poll, every allocation. What fails is tried again, or ends in
 * completions; nothing is lost, left behind or waited for in vain.
 */
#include "lib/test.h"

#include <stdbool.h>

#include "lib/devices/vqp_pair.h"
#include "lib/fault.h"

#define DEVICES 2
#define SLOT	2048 /* of memory for each WR */
#define PIECE	256
#define ROUNDS	3000

int __real_posix_memalign(void **out, size_t align, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
	return fault_now("posix_memalign") ? ENOMEM
					   : __real_posix_memalign(out, align, size);
}

static const struct shape {
	const char *name;
	uint32_t lanes;
	enum snt_scheme scheme;
	uint32_t flags;
	bool apart; /* receives have a CQ of their own */
} shapes[] = {
	{ "pass-through", 1, SNT_SCHEME_SPRAY, SNT_QP_PASS_THROUGH, false },
	{ "pass-through, two CQs", 1, SNT_SCHEME_SPRAY, SNT_QP_PASS_THROUGH, true },
	{ "tracked", 1, SNT_SCHEME_SPRAY, 0, false },
	{ "SPRAY", 3, SNT_SCHEME_SPRAY, 0, false },
	{ "DQPLB", 3, SNT_SCHEME_DQPLB, 0, false },
	{ "DQPLB, two CQs", 3, SNT_SCHEME_DQPLB, 0, true },
	{ "many lanes, two CQs", 12, SNT_SCHEME_SPRAY, 0, true },
};

static bool passes_on(const struct shape *shape)
{
	return shape->flags & SNT_QP_PASS_THROUGH;
}

/* What the first end sends, each from and to a slot of its own. */
static const struct work {
	uint8_t opcode;
	uint8_t flags;
	uint16_t length;
	uint32_t imm;
} works[] = {
	{ SNT_OP_WRITE, SNT_SEND_SIGNALED, 700, 0 },
	{ SNT_OP_WRITE_IMM, SNT_SEND_SIGNALED, 700, 1 },
	{ SNT_OP_READ, SNT_SEND_SIGNALED, 600, 0 },
	{ SNT_OP_SEND, SNT_SEND_SIGNALED, 200, 0 },
	{ SNT_OP_WRITE, 0, 300, 0 },
	{ SNT_OP_FETCH_ADD, SNT_SEND_SIGNALED, 8, 0 },
	{ SNT_OP_WRITE_IMM, SNT_SEND_SIGNALED, 0, 2 },
	{ SNT_OP_SEND_IMM, 0, 10, 3 },
	{ SNT_OP_CMP_SWAP, SNT_SEND_SIGNALED, 8, 0 },
	{ SNT_OP_WRITE_IMM, SNT_SEND_SIGNALED | SNT_SEND_FENCE, 100, 0 },
	{ SNT_OP_WRITE, SNT_SEND_SIGNALED | SNT_SEND_INLINE, 60, 0 },
	{ SNT_OP_READ, SNT_SEND_SIGNALED, 1, 0 },
};

#define WORKS	 ARRAY_SIZE(works)
#define NOTIFIES 4
#define MESSAGES 3

/* wr_ids of receives, by class. */
enum {
	NOTIFY_ID = 100,
	MESSAGE_ID = 200,
	CLOSE_ID = 300,
};

struct end {
	struct scripted_device *device[DEVICES];
	struct snt_ctx *ctx;
	struct snt_mem *mem;
	struct snt_token token;
	unsigned char memory[(WORKS + MESSAGES + 1) * SLOT];
	struct snt_cq *cq, *recv_cq;
	struct snt_qp *qp;
	/* What was taken, and what has come back. */
	bool taken[WORKS], succeeded[WORKS];
	unsigned next, notify_next, message_next;
	unsigned notifies, messages;
	bool closed;
};

struct life {
	const struct shape *shape;
	struct scripted_fabric *fabric;
	struct end end[2];
	bool harmed; /* something may fail */
	struct scripted_device *watched;
};

static struct life *life_begin(const struct shape *shape)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE |
				SNT_ACCESS_REMOTE_READ | SNT_ACCESS_REMOTE_ATOMIC;
	struct life *life = fault_exempt_alloc(sizeof(*life));

	life->shape = shape;
	life->fabric = scripted_fabric_create(1);
	for (unsigned i = 0; i < 2; i++) {
		struct end *end = &life->end[i];
		struct snt_adopted adopted[DEVICES];
		struct snt_ctx_opts opts = { .size = sizeof(opts),
					     .adopted = adopted,
					     .adopted_count = DEVICES };

		for (unsigned j = 0; j < DEVICES; j++) {
			end->device[j] = scripted_device_create(life->fabric, NULL);
			adopted[j] = scripted_adopted(end->device[j]);
		}
		assert_success(snt_ctx_create(&opts, &end->ctx));
		assert_success(snt_mem_register(end->ctx, end->memory,
						sizeof(end->memory), access,
						&end->mem));
		assert_success(snt_mem_token(end->mem, &end->token));
		for (unsigned j = 0; j < sizeof(end->memory); j++)
			end->memory[j] = j * 7 + (j >> 8) * 3 + i * 101;
	}
	return life;
}

/* Fails the test, unless a fault was to be expected; then it may be tried again. */
static bool done(struct life *life, int ret)
{
	if (ret >= 0)
		return true;
	if (!life->harmed)
		assert_success(ret);
	return false;
}

/* A call that fails for once succeeds at the second try, as if nothing had been. */
#define TRY(life, call)                       \
	do                                    \
		if (!done(life, call))        \
			assert_success(call); \
	while (0)

static void make_ends(struct life *life)
{
	struct snt_qp_opts opts = { .size = sizeof(opts),
				    .lanes = life->shape->lanes,
				    .scheme = life->shape->scheme,
				    .flags = life->shape->flags,
				    .lane_depth = 4,
				    .send_depth = 4,
				    .recv_depth = 8,
				    .inline_max = 64,
				    .fragment_size = PIECE };

	for (unsigned i = 0; i < 2; i++) {
		struct end *end = &life->end[i];

		TRY(life, snt_cq_create(end->ctx, NULL, &end->cq));
		end->recv_cq = end->cq;
		if (life->shape->apart)
			TRY(life, snt_cq_create(end->ctx, NULL, &end->recv_cq));
		opts.cq = end->cq;
		opts.recv_cq = end->recv_cq;
		TRY(life, snt_qp_create(end->ctx, &opts, &end->qp));
	}
}

/*
 * Completions
 */

static void take_recv(struct life *life, struct end *end, const struct snt_wc *wc)
{
	bool message = wc->wr_id >= MESSAGE_ID;
	unsigned *next = message ? &end->message_next : &end->notify_next;

	/* In one queue the classes are as they were posted, and serve either. */
	assert_int_equal(wc->wr_id, (message ? MESSAGE_ID : NOTIFY_ID) + (*next)++);
	assert_true(*next <= (message ? end->messages : end->notifies));
	if (wc->status)
		assert_true(life->harmed || life->end[1].closed ||
			    wc->status == SNT_WC_FLUSHED);
}

static void take_send(struct life *life, struct end *end, const struct snt_wc *wc)
{
	assert_in_range(wc->wr_id, end->next, WORKS - 1);
	for (; end->next < wc->wr_id; end->next++) {
		bool signalled = works[end->next].flags & SNT_SEND_SIGNALED;

		assert_false(end->taken[end->next] && signalled);
		end->succeeded[end->next] = end->taken[end->next];
	}
	assert_true(end->taken[end->next]);
	assert_true(works[end->next].flags & SNT_SEND_SIGNALED || wc->status);
	if (!life->harmed)
		assert_int_equal(wc->status, SNT_WC_SUCCESS);
	end->succeeded[end->next++] = !wc->status;
}

static void take(struct life *life, struct end *end, const struct snt_wc *wc)
{
	assert_false(end->closed);
	assert_int_equal(wc->qp_num, snt_qp_num(end->qp));
	if (wc->wr_id == CLOSE_ID)
		end->closed = true;
	else if (wc->wr_id >= NOTIFY_ID)
		take_recv(life, end, wc);
	else
		take_send(life, end, wc);
}

static void poll_one(struct life *life, struct end *end, struct snt_cq *cq)
{
	struct snt_wc wc[3];
	int count = snt_cq_poll(cq, wc, 3);

	if (!done(life, count))
		assert_int_equal(count, -EIO);
	for (int i = 0; i < count; i++)
		take(life, end, &wc[i]);
}

static void turn(struct life *life, unsigned round)
{
	for (unsigned i = 0; i < 2; i++) {
		struct end *end = &life->end[i];

		poll_one(life, end, end->cq);
		if (end->recv_cq != end->cq)
			poll_one(life, end, end->recv_cq);
	}
	scripted_run(life->fabric, round);
}

/*
 * Traffic
 */

/* A lane that passes on has no memory of receives. */
static void forget_recvs(struct life *life, struct end *end)
{
	struct snt_qp_info info = { .size = sizeof(info) };

	assert_success(snt_qp_query(end->qp, &info));
	if (passes_on(life->shape) && info.state == SNT_QP_UNCONNECTED)
		end->messages = end->notifies = 0;
}

static void post_recv(struct life *life, struct end *end, bool message)
{
	unsigned count = message ? end->messages : end->notifies;
	struct snt_sge sge = { end->mem, end->memory + (WORKS + count) * SLOT, PIECE };
	struct snt_recv_wr wr = { .wr_id = (message ? MESSAGE_ID : NOTIFY_ID) + count,
				  .sge = &sge,
				  /* In one queue each has to have room. */
				  .sge_count = message || passes_on(life->shape) };

	if (done(life, snt_qp_post_recv(end->qp, &wr, 1)))
		++*(message ? &end->messages : &end->notifies);
	else
		forget_recvs(life, end);
}

static struct snt_send_wr make_wr(struct life *life, unsigned i, struct snt_sge *sge)
{
	struct end *here = &life->end[0], *there = &life->end[1];

	*sge = (struct snt_sge){ here->mem, here->memory + i * SLOT, works[i].length };
	return (struct snt_send_wr){ .wr_id = i,
				     .opcode = works[i].opcode,
				     .flags = works[i].flags,
				     .imm = works[i].imm,
				     .sge = sge,
				     .sge_count = 1,
				     .remote = &there->token,
				     .remote_addr = there->token.addr + i * SLOT };
}

static void send_all(struct life *life)
{
	struct end *end = &life->end[0];

	for (unsigned i = 0; i < WORKS; i++) {
		struct snt_sge sge;
		struct snt_send_wr wr = make_wr(life, i, &sge);
		int ret = snt_qp_post_send(end->qp, &wr, 1);

		for (unsigned round = 0; ret == -EAGAIN && round < ROUNDS; round++) {
			turn(life, round);
			ret = snt_qp_post_send(end->qp, &wr, 1);
		}
		end->taken[i] = done(life, ret);
	}
}

/* Until nothing more can be expected of it. */
static void settle(struct life *life)
{
	for (unsigned round = 0; round < 200; round++)
		turn(life, round);
}

/* Before there is a connection. */
static void post_early(struct life *life, struct end *end)
{
	for (unsigned i = 0; i < MESSAGES - 1; i++)
		post_recv(life, end, true);
	for (unsigned i = 0; i < NOTIFIES - 2; i++)
		post_recv(life, end, false);
}

static void traffic(struct life *life)
{
	struct end *end = &life->end[1];
	struct snt_card card[2];

	post_early(life, end);
	for (unsigned i = 0; i < 2; i++)
		TRY(life, snt_qp_card(life->end[i].qp, &card[i]));
	TRY(life, snt_qp_connect(life->end[0].qp, &card[1]));
	if (!done(life, snt_qp_connect(end->qp, &card[0]))) {
		forget_recvs(life, end);
		if (passes_on(life->shape))
			post_early(life, end);
		assert_success(snt_qp_connect(end->qp, &card[0]));
	}
	post_recv(life, end, true);
	post_recv(life, end, false);
	post_recv(life, end, false);
	send_all(life);
	settle(life);
}

/*
 * The end
 */

/* A close that fails has not closed, and can be called again. */
static void close_end(struct life *life, struct end *end)
{
	if (!done(life, snt_qp_close(end->qp, CLOSE_ID))) {
		settle(life);
		assert_false(end->closed);
		assert_success(snt_qp_close(end->qp, CLOSE_ID));
	}
	for (unsigned round = 0; !end->closed && round < ROUNDS; round++)
		turn(life, round);
	assert_true(end->closed);
}

static void check_bytes(const struct life *life)
{
	for (unsigned i = 0; i < WORKS; i++) {
		const unsigned char *here = life->end[0].memory + i * SLOT;
		const unsigned char *there = life->end[1].memory + i * SLOT;
		uint8_t opcode = works[i].opcode;

		if (!life->end[0].succeeded[i] || opcode == SNT_OP_SEND ||
		    opcode == SNT_OP_SEND_IMM || opcode >= SNT_OP_CMP_SWAP)
			continue;
		assert_memory_equal(here, there, works[i].length);
	}
}

/* Returns whether the fault that was set has been met. */
static bool life_end(struct life *life)
{
	bool hit;

	for (unsigned i = 0; i < 2; i++) {
		struct end *end = &life->end[i];

		close_end(life, end);
		assert_int_equal(end->notify_next, end->notifies);
		assert_int_equal(end->message_next, end->messages);
	}
	for (unsigned i = life->end[0].next; i < WORKS; i++)
		assert_false(life->end[0].taken[i] &&
			     works[i].flags & SNT_SEND_SIGNALED);
	check_bytes(life);
	for (unsigned i = 0; i < 2; i++) {
		struct end *end = &life->end[i];

		TRY(life, snt_qp_destroy(end->qp));
		if (life->shape->apart)
			TRY(life, snt_cq_destroy(end->recv_cq));
		TRY(life, snt_cq_destroy(end->cq));
		TRY(life, snt_mem_release(end->mem));
		TRY(life, snt_ctx_destroy(end->ctx));
		for (unsigned j = 0; j < DEVICES; j++)
			assert_int_equal(scripted_faults(end->device[j]), 0);
	}
	hit = life->watched && scripted_failed_control(life->watched);
	assert_int_equal(scripted_fabric_destroy(life->fabric), 0);
	free(life);
	return hit;
}

static bool live(struct life *life)
{
	make_ends(life);
	traffic(life);
	return life_end(life);
}

/*
 * Faults
 */

static void a_life_without_faults(void **state)
{
	(void)state;
	for (unsigned shape = 0; shape < ARRAY_SIZE(shapes); shape++) {
		struct life *life = life_begin(&shapes[shape]);

		make_ends(life);
		traffic(life);
		for (unsigned i = 0; i < WORKS; i++)
			assert_true(life->end[0].taken[i]);
		assert_int_equal(life->end[0].next, WORKS);
		/* Those that have an immediate or are messages; in one queue they
		 * take what comes first. */
		assert_int_equal(life->end[1].message_next + life->end[1].notify_next,
				 5);
		life_end(life);
	}
}

/* How many calls of a kind there are in a life that nothing disturbs. */
static struct scripted_counters count_calls(const struct shape *shape, unsigned end,
					    unsigned device)
{
	struct life *life = life_begin(shape);
	struct scripted_counters before, after;

	before = scripted_counters(life->end[end].device[device]);
	make_ends(life);
	traffic(life);
	after = scripted_counters(life->end[end].device[device]);
	life_end(life);
	after.control_calls -= before.control_calls;
	return after;
}

static void every_control_call_fails_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(shapes); i++) {
		const struct shape *shape = &shapes[i / 4];
		unsigned end = i / 2 % 2, device = i % 2, nth;
		bool hit = true;

		for (nth = 1; hit; nth++) {
			struct life *life = life_begin(shape);

			life->harmed = true;
			life->watched = life->end[end].device[device];
			scripted_fail_control(life->watched, nth, EIO);
			hit = live(life);
		}
		assert_true(nth > 5 || device > 0);
	}
}

static void fail_posts(enum scripted_post_kind kind)
{
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(shapes); i++) {
		const struct shape *shape = &shapes[i / 4];
		unsigned end = i / 2 % 2, device = i % 2;
		struct scripted_counters calls = count_calls(shape, end, device);
		unsigned count = 4 + (kind == SCRIPTED_POST_SEND ? calls.send_calls
								 : calls.recv_calls);

		/* Beyond those of the traffic: the ends of the queues. */
		for (unsigned nth = 1; nth <= count; nth++) {
			for (unsigned mode = 0; mode < 4; mode++) {
				struct scripted_post_fault fault = { .kind = kind,
								     .nth = nth,
								     .error = EIO,
								     .mode = mode,
								     .accept = 1 };
				struct life *life = life_begin(shape);

				life->harmed = true;
				scripted_fail_post(life->end[end].device[device],
						   &fault);
				live(life);
			}
		}
	}
}

static void every_post_of_sends_fails_once(void **state)
{
	(void)state;
	fail_posts(SCRIPTED_POST_SEND);
}

static void every_post_of_receives_fails_once(void **state)
{
	(void)state;
	fail_posts(SCRIPTED_POST_RECV);
}

/* As often as in all of a life, with closing. */
static void every_poll_fails_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(shapes); i++) {
		const struct shape *shape = &shapes[i / 4];
		unsigned end = i / 2 % 2;

		for (unsigned nth = 1; nth < 60; nth++) {
			struct life *life = life_begin(shape);
			struct snt_cq *cq;

			life->harmed = true;
			make_ends(life);
			cq = i % 2 ? life->end[end].recv_cq : life->end[end].cq;
			for (unsigned j = 0; j < snt_cq_count(cq); j++)
				scripted_fail_poll(snt_cq_physical(cq, j, NULL), nth);
			traffic(life);
			for (unsigned j = 0; j < WORKS; j++)
				assert_true(life->end[0].succeeded[j] ||
					    life->end[0].next <= j);
			life_end(life);
		}
	}
}

static void every_allocation_fails_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		bool hit = true;
		unsigned nth;

		for (nth = 1; hit; nth++) {
			struct life *life = life_begin(&shapes[i]);

			life->harmed = true;
			fault_arm(nth);
			make_ends(life);
			traffic(life);
			hit = fault_was_hit();
			life_end(life);
			fault_arm(0);
		}
		assert_true(nth > 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_life_without_faults),
		cmocka_unit_test(every_control_call_fails_once),
		cmocka_unit_test(every_post_of_sends_fails_once),
		cmocka_unit_test(every_post_of_receives_fails_once),
		cmocka_unit_test(every_poll_fails_once),
		cmocka_unit_test(every_allocation_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
