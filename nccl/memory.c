/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "plugin.h"

static const unsigned all_access = SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE;

/* Packs the token once: each grant of this memory contains it. */
static int make_memory(struct snt_mem *mem, struct memory **memory_out)
{
	struct memory *memory = calloc(1, sizeof(*memory));
	struct snt_token token;
	ssize_t length = -1;

	if (memory && !snt_mem_token(mem, &token))
		length = snt_token_pack(&token, memory->token, sizeof(memory->token));
	if (length < 0) {
		free(memory);
		snt_mem_release(mem);
		return plugin_fail(NCCL_SYSTEM_ERROR, "no memory for a registration");
	}
	memory->mem = mem;
	memory->token_length = length;
	*memory_out = memory;
	return NCCL_SUCCESS;
}

int memory_register(void *data, size_t size, int type, struct memory **memory_out)
{
	struct snt_mem *mem;

	if (type != NCCL_HOST)
		return plugin_fail(NCCL_INVALID_USAGE,
				   "memory of type %d cannot be registered, only host "
				   "memory (%d)",
				   type, NCCL_HOST);
	if (snt_mem_register(process_ctx(), data, size, all_access, &mem))
		return plugin_fail(NCCL_SYSTEM_ERROR,
				   "%zu bytes at %p were not registered: %s", size,
				   data, snt_err_text());
	return make_memory(mem, memory_out);
}

int memory_register_dmabuf(void *data, size_t size, uint64_t offset, int fd,
			   struct memory **memory_out)
{
	struct snt_mem *mem;

	if (snt_mem_register_dmabuf(process_ctx(), fd, offset, size, (uintptr_t)data,
				    all_access, &mem))
		return plugin_fail(NCCL_SYSTEM_ERROR,
				   "%zu bytes of a dma-buf were not registered: %s",
				   size, snt_err_text());
	return make_memory(mem, memory_out);
}

int memory_release(struct memory *memory)
{
	int ret;

	if (!memory)
		return NCCL_SUCCESS;
	ret = snt_mem_release(memory->mem);
	free(memory);
	if (ret)
		return plugin_fail(NCCL_SYSTEM_ERROR, "memory was not released: %s",
				   snt_err_text());
	return NCCL_SUCCESS;
}
