/* SPDX-License-Identifier: MIT */
/* What naming memory costs: the range checks, and tokens on their way. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sennit/sennit.h>

#include "lib/devices/null.h"
#include "lib/bench.h"

#define DEVICES 8

static char buffer[1 << 20];
static struct snt_mem *mem;
static struct snt_token token;

/* The baseline: what a program would write by hand, unchecked. */
static void sge_by_hand(void *arg, unsigned count)
{
	const uint64_t addr = snt_mem_addr(mem);

	(void)arg;
	for (unsigned i = 0; i < count; i++) {
		struct ibv_sge sge = { addr + i, 64, i };

		bench_use(&sge);
	}
}

static void sge_checked(void *arg, unsigned count)
{
	(void)arg;
	for (unsigned i = 0; i < count; i++) {
		struct ibv_sge sge;

		snt_mem_sge(mem, i % DEVICES, i, 64, &sge);
		bench_use(&sge);
	}
}

static void target_checked(void *arg, unsigned count)
{
	uint64_t addr;
	uint32_t key;

	(void)arg;
	for (unsigned i = 0; i < count; i++) {
		snt_token_target(&token, i % DEVICES, i, 64, SNT_ACCESS_REMOTE_WRITE,
				 &addr, &key);
		bench_use(&addr);
	}
}

static void pack_unpack(void *arg, unsigned count)
{
	uint8_t packed[SNT_TOKEN_PACKED_MAX];
	struct snt_token back;

	(void)arg;
	for (unsigned i = 0; i < count; i++) {
		ssize_t size = snt_token_pack(&token, packed, sizeof(packed));

		snt_token_unpack(packed, size, &back);
		bench_use(&back);
	}
}

static void register_release(void *arg, unsigned count)
{
	struct snt_ctx *ctx = arg;

	for (unsigned i = 0; i < count; i++) {
		struct snt_mem *again;

		if (!snt_mem_register(ctx, buffer, sizeof(buffer), 0, &again))
			snt_mem_release(again);
	}
}

int main(int argc, char **argv)
{
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;
	struct bench *bench = bench_begin("mem", argc, argv);
	struct null_device *null[DEVICES];
	struct snt_adopted adopted[DEVICES];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = adopted,
				     .adopted_count = DEVICES };
	struct snt_ctx *ctx;
	int status;

	for (int i = 0; i < DEVICES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "null%d", i);
		null[i] = null_device_create(name);
		adopted[i] = null_adopted(null[i]);
	}
	if (snt_ctx_create(&opts, &ctx) ||
	    snt_mem_register(ctx, buffer, sizeof(buffer), access, &mem) ||
	    snt_mem_token(mem, &token)) {
		fprintf(stderr, "mem: %s\n", snt_err_text());
		return 1;
	}
	bench_case(bench, "sge-by-hand", sge_by_hand, NULL, 4096, NULL);
	bench_case(bench, "sge-checked", sge_checked, NULL, 4096, "sge-by-hand");
	bench_case(bench, "token-target", target_checked, NULL, 4096, NULL);
	bench_case(bench, "token-pack-unpack-8", pack_unpack, NULL, 1024, NULL);
	bench_case(bench, "register-release-8", register_release, ctx, 256, NULL);
	status = bench_end(bench);
	snt_mem_release(mem);
	snt_ctx_destroy(ctx);
	for (int i = 0; i < DEVICES; i++)
		null_device_destroy(null[i]);
	return status;
}
