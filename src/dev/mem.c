/* SPDX-License-Identifier: MIT */
#include "dev/mem.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "dev/ctx.h"
#include "util/err.h"
#include "util/lines.h"

_Static_assert((int)SNT_ACCESS_LOCAL_WRITE == (int)IBV_ACCESS_LOCAL_WRITE, "as verbs");
_Static_assert((int)SNT_ACCESS_REMOTE_WRITE == (int)IBV_ACCESS_REMOTE_WRITE,
	       "as verbs");
_Static_assert((int)SNT_ACCESS_REMOTE_READ == (int)IBV_ACCESS_REMOTE_READ, "as verbs");
_Static_assert((int)SNT_ACCESS_REMOTE_ATOMIC == (int)IBV_ACCESS_REMOTE_ATOMIC,
	       "as verbs");
_Static_assert((int)SNT_ACCESS_WINDOW == (int)IBV_ACCESS_MW_BIND, "as verbs");
_Static_assert((int)SNT_ACCESS_RELAXED_ORDERING == (int)IBV_ACCESS_RELAXED_ORDERING,
	       "as verbs");

#define ACCESS_WRITING (SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_ATOMIC)
#define ACCESS_REMOTE  (ACCESS_WRITING | SNT_ACCESS_REMOTE_READ)
#define ACCESS_ALL                                                    \
	(ACCESS_REMOTE | SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_WINDOW | \
	 SNT_ACCESS_RELAXED_ORDERING)

#define WINDOW_TYPES (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)

/* What is to be registered, as the device calls take it. */
struct request {
	void *addr; /* ordinary memory, or NULL for a dma-buf */
	int fd;
	uint64_t offset;
	uint64_t iova;
	size_t length;
	unsigned access;
};

static int check_request(uint64_t addr, size_t length, unsigned access)
{
	if (!length)
		return snt__fail(EINVAL,
				 "memory at 0x%" PRIx64 " has no bytes to register",
				 addr);
	if (length - 1 > UINT64_MAX - addr)
		return snt__fail(EINVAL,
				 "memory at 0x%" PRIx64 " with %zu bytes reaches "
				 "beyond the end of the address space",
				 addr, length);
	if (access & ~ACCESS_ALL)
		return snt__fail(EINVAL,
				 "access 0x%x has bits that are no SNT_ACCESS_*",
				 access);
	if (access & ACCESS_WRITING && !(access & SNT_ACCESS_LOCAL_WRITE))
		return snt__fail(EINVAL,
				 "access 0x%x: remote write and atomic need "
				 "SNT_ACCESS_LOCAL_WRITE as well",
				 access);
	return 0;
}

static struct snt_mem *mem_new(struct snt_ctx *ctx, uint64_t addr, size_t length,
			       unsigned access)
{
	struct snt_mem *mem;

	mem = snt__lines_alloc(1, sizeof(*mem));
	if (!mem) {
		snt__fail(ENOMEM, "no memory to keep track of a registration");
		return NULL;
	}
	mem->ctx = ctx;
	mem->addr = addr;
	mem->length = length;
	mem->access = access;
	return mem;
}

static void mem_free(struct snt_mem *mem)
{
	snt__shared_mem_free(mem->shared);
	free(mem);
}

static void mem_add_key(struct snt_mem *mem, struct ibv_mr *mr)
{
	mem->local_key[mem->key_count] = mr->lkey;
	mem->remote_key[mem->key_count] = mr->rkey;
	mem->mr[mem->key_count] = mr;
	mem->key_count++;
}

/* Tries all regions, and keeps those that a device refuses to deregister. Returns the
 * device that refused first, or NULL. */
static const struct snt_device *deregister_all(struct snt_mem *mem, int *ret_out)
{
	const struct snt_device *first = NULL;

	for (unsigned i = 0; i < mem->key_count; i++) {
		const struct snt_device *device = mem->ctx->device[i];
		int ret;

		if (!mem->mr[i])
			continue;
		ret = device->control.dereg_mr(mem->mr[i]);
		if (!ret) {
			mem->mr[i] = NULL;
		} else if (!first) {
			first = device;
			*ret_out = ret;
		}
	}
	return first;
}

static int still_registered(const struct snt_device *device, int ret)
{
	char text[SNT__DEVICE_TEXT];

	return snt__fail(-ret, "%s: cannot deregister memory: %s",
			 snt__device_text(device, text), strerror(-ret));
}

static int release_deferred_mem(void *owner)
{
	struct snt_mem *mem = owner;
	const struct snt_device *device;
	int ret;

	device = deregister_all(mem, &ret);
	if (device)
		return still_registered(device, ret);
	mem_free(mem);
	return 0;
}

/* Undoes a registration that failed half-way, without an error text: the first failure
 * is the one to report. */
static void undo_registration(struct snt_mem *mem)
{
	int ret;

	if (!deregister_all(mem, &ret)) {
		mem_free(mem);
		return;
	}
	snt__deferred_release_add(mem->ctx, &mem->deferred, release_deferred_mem, mem);
}

/* The two most frequent reasons, with what to do. */
static void explain_failure(int err, const struct request *request, char *text,
			    size_t size)
{
	struct rlimit limit;

	*text = '\0';
	if (err == ENOMEM && !getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY)
		snprintf(text, size,
			 "; the limit on locked memory is %" PRIu64
			 " bytes (ulimit -l), %zu are asked for",
			 (uint64_t)limit.rlim_cur, request->length);
	else if (err == EFAULT)
		snprintf(text, size,
			 "; part of it is not mapped, or is read-only and "
			 "asked to be writable");
}

static int fail_registration(const struct snt_device *device, int ret,
			     const struct request *request)
{
	char text[SNT__DEVICE_TEXT], why[128];

	/* A table that returns positive numbers does not follow the specification. */
	if (ret > 0)
		ret = -EPROTO;
	explain_failure(-ret, request, why, sizeof(why));
	return snt__fail(-ret, "%s: cannot register %zu bytes%s: %s%s",
			 snt__device_text(device, text), request->length,
			 request->addr ? "" : " of a dma-buf", strerror(-ret), why);
}

static int fail_unsupported(const struct snt_device *device, const char *what)
{
	return snt__fail(EOPNOTSUPP, "%s: %s", device->name, what);
}

static int register_on(const struct snt_device *device, const struct request *request,
		       struct ibv_mr **mr_out)
{
	const struct snt_control *control = &device->control;
	int ret;

	if (!control->reg_mr || !control->dereg_mr)
		return fail_unsupported(
			device, "was adopted without the means to register memory; "
				"register it yourself and use snt_mem_adopt()");
	if (request->access & SNT_ACCESS_WINDOW &&
	    !(snt__port(device)->cap_flags & WINDOW_TYPES))
		return fail_unsupported(device, "the device has no memory windows");
	if (!request->addr && !control->reg_dmabuf_mr)
		return fail_unsupported(device,
					"the device has no support for dma-buf");
	if (request->addr)
		ret = control->reg_mr(device->pd, request->addr, request->length,
				      request->access, mr_out);
	else
		ret = control->reg_dmabuf_mr(device->pd, request->fd, request->offset,
					     request->length, request->iova,
					     request->access, mr_out);
	if (!request->addr && (ret == -EOPNOTSUPP || ret == -ENOSYS))
		return fail_unsupported(device,
					"the device has no support for dma-buf");
	if (!ret && !*mr_out)
		ret = -EPROTO;
	return ret ? fail_registration(device, ret, request) : 0;
}

/* After a failure the memory is freed. */
static int register_mem(struct snt_mem *mem, const struct request *request,
			struct snt_mem **mem_out)
{
	struct snt_ctx *ctx = mem->ctx;

	/* Counted before the devices are called, which may take long: the context stays
	 * open. */
	snt__ctx_add(ctx, SNT__CTX_MEMS, 1);
	for (unsigned i = 0; i < ctx->device_count; i++) {
		struct ibv_mr *mr = NULL;
		int ret = register_on(ctx->device[i], request, &mr);

		if (ret) {
			undo_registration(mem);
			snt__ctx_add(ctx, SNT__CTX_MEMS, -1);
			return ret;
		}
		mem_add_key(mem, mr);
	}
	*mem_out = mem;
	return 0;
}

static int register_all(struct snt_ctx *ctx, const struct request *request,
			struct snt_mem **mem_out)
{
	struct snt_mem *mem;
	int ret = snt__ctx_check(ctx);

	if (!ret)
		ret = check_request(request->iova, request->length, request->access);
	if (ret)
		return ret;
	mem = mem_new(ctx, request->iova, request->length, request->access);
	return mem ? register_mem(mem, request, mem_out) : -ENOMEM;
}

int snt_mem_register(struct snt_ctx *ctx, void *addr, size_t length, unsigned access,
		     struct snt_mem **mem_out)
{
	struct request request = {
		.addr = addr,
		.iova = (uintptr_t)addr,
		.length = length,
		.access = access,
	};

	if (!addr)
		return snt__fail(EINVAL, "memory to register is at NULL");
	return register_all(ctx, &request, mem_out);
}

int snt_mem_alloc(struct snt_ctx *ctx, size_t length, unsigned access,
		  struct snt_mem **mem_out)
{
	struct request request = { .length = length, .access = access };
	struct snt__shared_mem *shared;
	struct snt_mem *mem;
	int ret = snt__ctx_check(ctx);

	if (!ret)
		ret = check_request(0, length, access);
	if (ret)
		return ret;
	ret = snt__shared_mem_make(length, &shared);
	if (ret)
		return snt__fail(-ret, "cannot make memory of %zu bytes: %s", length,
				 strerror(-ret));
	request.addr = shared->bytes;
	request.iova = (uintptr_t)shared->bytes;
	mem = mem_new(ctx, request.iova, length, access);
	if (!mem) {
		snt__shared_mem_free(shared);
		return -ENOMEM;
	}
	mem->shared = shared;
	return register_mem(mem, &request, mem_out);
}

int snt_mem_register_dmabuf(struct snt_ctx *ctx, int fd, uint64_t offset, size_t length,
			    uint64_t iova, unsigned access, struct snt_mem **mem_out)
{
	struct request request = {
		.fd = fd,
		.offset = offset,
		.iova = iova,
		.length = length,
		.access = access,
	};

	return register_all(ctx, &request, mem_out);
}

static int check_adopted_mr(const struct snt_ctx *ctx, struct ibv_mr *const *mr,
			    size_t mr_count)
{
	if (mr_count != ctx->device_count)
		return snt__fail(
			EINVAL, "%zu memory regions for %u devices; adopt one for each",
			mr_count, ctx->device_count);
	for (size_t i = 0; i < mr_count; i++) {
		if (!mr[i] || mr[i]->pd != ctx->device[i]->pd)
			return snt__fail(EINVAL,
					 "%s: memory region %zu is not of its PD",
					 ctx->device[i]->name, i);
		if (mr[i]->length != mr[0]->length)
			return snt__fail(
				EINVAL,
				"%s: memory region %zu has another length than the "
				"first",
				ctx->device[i]->name, i);
	}
	return 0;
}

int snt_mem_adopt(struct snt_ctx *ctx, struct ibv_mr *const *mr, size_t mr_count,
		  uint64_t addr, unsigned access, struct snt_mem **mem_out)
{
	struct snt_mem *mem;
	int ret = check_adopted_mr(ctx, mr, mr_count);

	if (ret)
		return ret;
	ret = check_request(addr, mr[0]->length, access);
	if (ret)
		return ret;
	mem = mem_new(ctx, addr, mr[0]->length, access);
	if (!mem)
		return -ENOMEM;
	mem->adopted = true;
	for (size_t i = 0; i < mr_count; i++)
		mem_add_key(mem, mr[i]);
	snt__ctx_add(ctx, SNT__CTX_MEMS, 1);
	*mem_out = mem;
	return 0;
}

static int was_released(const struct snt_mem *mem)
{
	return mem->ctx ? snt__fail(EINVAL, "memory is half released; it can only be "
					    "released again")
			: snt__fail(EINVAL, "memory has been released");
}

/* The structure takes the shared of the one that was released longest ago. */
static void retire_mem(struct snt_mem *mem)
{
	struct snt_ctx *ctx = mem->ctx;
	struct snt_mem **slot, *oldest;

	snt__shared_mem_free(mem->shared);
	mem->shared = NULL;
	mem->length = 0;
	mem->ctx = NULL;
	snt__ctx_lock(ctx);
	slot = &ctx->released[ctx->released_next++ % SNT__RELEASED_KEPT];
	oldest = *slot;
	*slot = mem;
	ctx->count[SNT__CTX_MEMS]--;
	snt__ctx_unlock(ctx);
	free(oldest);
}

int snt_mem_release(struct snt_mem *mem)
{
	const struct snt_device *device;
	int ret;

	if (!mem)
		return 0;
	if (!mem->ctx)
		return was_released(mem);
	device = mem->adopted ? NULL : deregister_all(mem, &ret);
	if (device) {
		mem->length = 0;
		return still_registered(device, ret);
	}
	retire_mem(mem);
	return 0;
}

uint64_t snt_mem_addr(const struct snt_mem *mem)
{
	return mem->addr;
}

size_t snt_mem_length(const struct snt_mem *mem)
{
	return mem->length;
}

int snt_mem_sge(const struct snt_mem *mem, unsigned device, size_t offset,
		size_t length, struct ibv_sge *sge_out)
{
	if (!mem->length)
		return was_released(mem);
	if (device >= mem->key_count)
		return snt__fail(EINVAL,
				 "memory has no key for device %u; its context "
				 "has %u",
				 device, mem->key_count);
	if (!snt__range_holds(mem->length, offset, length))
		return snt__fail(ERANGE,
				 "%zu bytes at offset %zu reach outside of a "
				 "memory of %zu",
				 length, offset, mem->length);
	if (length > UINT32_MAX)
		return snt__fail(EINVAL, "%zu bytes are too many for one SGE", length);
	*sge_out = (struct ibv_sge){
		.addr = mem->addr + offset,
		.length = length,
		.lkey = mem->local_key[device],
	};
	return 0;
}

int snt_mem_token(const struct snt_mem *mem, struct snt_token *token_out)
{
	struct snt_token token = {
		.addr = mem->addr,
		.length = mem->length,
		.access = mem->access & ACCESS_REMOTE,
		.key_count = mem->key_count,
	};

	if (!mem->length)
		return was_released(mem);
	if (!token.access)
		return snt__fail(
			EACCES,
			"memory was registered without SNT_ACCESS_REMOTE_*, which a token "
			"needs");
	for (unsigned i = 0; i < mem->key_count; i++)
		token.key[i] = mem->remote_key[i];
	*token_out = token;
	return 0;
}
