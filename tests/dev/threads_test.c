/* SPDX-License-Identifier: MIT */
/* Contexts in several threads at once share nothing, and one may move. */
#include "lib/test.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sennit/sennit.h>

#define THREADS 4
#define ROUNDS	200

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	attr->phys_port_cnt = 1;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr)
{
	(void)context;
	(void)port;
	attr->state = IBV_PORT_ACTIVE;
	attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
	return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, uint32_t index,
		     struct ibv_gid_entry *entry)
{
	(void)context;
	(void)port;
	(void)index;
	(void)entry;
	return -ENODATA;
}

static const struct snt_control control = {
	.size = sizeof(control),
	.query_device = query_device,
	.query_port = query_port,
	.query_gid = query_gid,
};

/* Everything that a thread needs, on its own stack. */
struct own {
	struct ibv_context context;
	struct ibv_pd pd;
	struct ibv_mr mr;
	char name[16];
	char buffer[64];
};

static struct snt_ctx *open_own(struct own *own, const char *name)
{
	struct snt_adopted adopted = { .size = sizeof(adopted),
				       .name = own->name,
				       .context = &own->context,
				       .pd = &own->pd,
				       .control = &control };
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = &adopted,
				     .adopted_count = 1 };
	struct snt_ctx *ctx = NULL;

	memset(own, 0, sizeof(*own));
	snprintf(own->name, sizeof(own->name), "%s", name);
	own->pd.context = &own->context;
	own->mr = (struct ibv_mr){ .pd = &own->pd, .addr = own->buffer, .length = 64 };
	return snt_ctx_create(&opts, &ctx) ? NULL : ctx;
}

static int use(struct snt_ctx *ctx, struct own *own)
{
	struct ibv_mr *mr = &own->mr;
	struct snt_mem *mem;
	struct snt_token token;

	if (snt_mem_adopt(ctx, &mr, 1, (uintptr_t)own->buffer, SNT_ACCESS_REMOTE_READ,
			  &mem))
		return -1;
	if (snt_mem_token(mem, &token) || token.addr != (uintptr_t)own->buffer)
		return -1;
	/* A failure, whose text must be this thread's own. */
	if (snt_mem_register(ctx, own->buffer, 1, 0, &mem) != -EOPNOTSUPP ||
	    strncmp(snt_err_text(), own->name, strlen(own->name)))
		return -1;
	return snt_mem_release(mem);
}

static void *work(void *arg)
{
	struct own own;
	long failed = 0;

	for (int i = 0; i < ROUNDS && !failed; i++) {
		struct snt_ctx *ctx = open_own(&own, arg);

		failed = !ctx || use(ctx, &own) || snt_ctx_destroy(ctx);
	}
	return (void *)failed;
}

static void contexts_are_independent(void **state)
{
	static char name[THREADS][8] = { "one", "two", "three", "four" };
	pthread_t thread[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, work, name[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed;

		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
}

struct moved {
	struct snt_ctx *ctx;
	struct own *own;
};

static void *use_and_close(void *arg)
{
	struct moved *moved = arg;
	long failed = use(moved->ctx, moved->own) || snt_ctx_destroy(moved->ctx);

	return (void *)failed;
}

static void context_may_move_to_another_thread(void **state)
{
	struct own own;
	struct moved moved = { open_own(&own, "mover"), &own };
	pthread_t thread;
	void *failed;

	(void)state;
	assert_non_null(moved.ctx);
	assert_int_equal(pthread_create(&thread, NULL, use_and_close, &moved), 0);
	pthread_join(thread, &failed);
	assert_null(failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_are_independent),
		cmocka_unit_test(context_may_move_to_another_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
