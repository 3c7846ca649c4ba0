/* SPDX-License-Identifier: MIT */
/* Opens every RDMA device of this host, registers memory on all of them in one
 * call, and shows the token by which a peer would reach it. */
#include <stdio.h>
#include <sennit/sennit.h>

int main(void)
{
	static char buffer[4096];
	struct snt_ctx *ctx = NULL;
	struct snt_mem *mem = NULL;
	struct snt_token token;
	const unsigned access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;

	if (snt_ctx_create(NULL, &ctx) ||
	    snt_mem_register(ctx, buffer, sizeof(buffer), access, &mem) ||
	    snt_mem_token(mem, &token)) {
		fprintf(stderr, "hello: %s\n", snt_err_text());
		return 1;
	}
	for (unsigned i = 0; i < snt_ctx_device_count(ctx); i++) {
		struct snt_device_info info = SNT_INIT(info);

		snt_device_query(snt_ctx_device(ctx, i), &info);
		printf("%s port %u, MTU %u, GID %s, key 0x%x\n", info.name, info.port,
		       info.mtu, info.gid_reason, token.key[i]);
	}
	snt_mem_release(mem);
	return snt_ctx_destroy(ctx) ? 1 : 0;
}
