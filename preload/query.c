/* SPDX-License-Identifier: MIT */
/* Queries of devices. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "dev/soft/core.h"
#include "dev/soft/verbs.h"
#include "preload.h"
#include "real.h"

#define PKEY 0xffff /* the only one that RoCE has */

/* enum ibv_gid_type_sysfs of rdma-core */
#define GID_TYPE_ROCE_V2 1

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_query_device(context, attr);
	return -snt__preload_control()->query_device(context, attr);
}

/* Programs that have the inline verb do not call this. Older ones have a structure that
 * ends before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port,
		   struct _compat_ibv_port_attr *attr)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_query_port(context, port, attr);
	return snt__soft_verbs_query_port(context, port, (struct ibv_port_attr *)attr,
					  offsetof(struct ibv_port_attr,
						   port_cap_flags2));
}

/* Programs such as NCCL use the port's attributes if this fails. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port,
			 uint64_t *speed_out)
{
	if (snt__preload_is_soft(context) || !snt__real()->ibv_query_port_speed)
		return EOPNOTSUPP;
	return snt__real()->ibv_query_port_speed(context, port, speed_out);
}

static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *entry)
{
	if (port > UINT8_MAX)
		return -EINVAL;
	return snt__preload_control()->query_gid(context, (uint8_t)port, index, entry);
}

/* An empty entry is not an error here, but 0. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
		  union ibv_gid *gid)
{
	struct ibv_gid_entry entry = { .gid_index = 0 };
	int ret;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_query_gid(context, port, index, gid);
	ret = query_gid(context, port, (uint32_t)index, &entry);
	if (ret && ret != -ENODATA)
		return AS_MINUS_ONE(ret);
	*gid = entry.gid;
	return 0;
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
		       unsigned *type)
{
	struct ibv_gid_entry entry;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_query_gid_type(context, port, index, type);
	if (query_gid(context, port, index, &entry))
		return AS_MINUS_ONE(-EINVAL);
	*type = GID_TYPE_ROCE_V2;
	return 0;
}

/* The program may have been compiled with a longer structure. */
static void write_entry(void *to, size_t size, const struct ibv_gid_entry *entry)
{
	memset(to, 0, size);
	memcpy(to, entry, size < sizeof(*entry) ? size : sizeof(*entry));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry_out, uint32_t flags, size_t size)
{
	struct ibv_gid_entry entry;
	int ret;

	if (!snt__preload_is_soft(context))
		return snt__real()->_ibv_query_gid_ex(context, port, index, entry_out,
						      flags, size);
	if (flags)
		return EOPNOTSUPP;
	ret = query_gid(context, port, index, &entry);
	if (!ret)
		write_entry(entry_out, size, &entry);
	return -ret;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max, uint32_t flags, size_t size)
{
	struct ibv_gid_entry entry;
	size_t count = 0;

	if (!snt__preload_is_soft(context))
		return snt__real()->_ibv_query_gid_table(context, entries, max, flags,
							 size);
	if (flags)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < SNT__SOFT_GID_MAX; i++) {
		if (query_gid(context, 1, i, &entry))
			continue;
		if (count == max)
			return -EINVAL;
		write_entry((char *)entries + count++ * size, size, &entry);
	}
	return (ssize_t)count;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_query_pkey(context, port, index, pkey);
	if (port != 1 || index)
		return AS_MINUS_ONE(-EINVAL);
	*pkey = htobe16(PKEY);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_get_pkey_index(context, port, pkey);
	if (port != 1 || pkey != htobe16(PKEY))
		return AS_MINUS_ONE(-EINVAL);
	return 0;
}
