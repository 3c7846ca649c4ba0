/* SPDX-License-Identifier: MIT */
/* Addresses by name, and devices by context. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

/*
 * Ports
 */

static __be16 port_of(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return ((const struct sockaddr_in *)address)->sin_port;
	if (address->ss_family == AF_INET6)
		return ((const struct sockaddr_in6 *)address)->sin6_port;
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_get_src_port(rdma);
	if (id->real)
		return snt__real()->rdma_get_src_port(id->real);
	return port_of(&rdma->route.addr.src_storage);
}

__be16 rdma_get_dst_port(struct rdma_cm_id *rdma)
{
	struct snt__preload_id *id = snt__preload_id(rdma);

	if (BYPASSED())
		return snt__real()->rdma_get_dst_port(rdma);
	if (id->real)
		return snt__real()->rdma_get_dst_port(id->real);
	return port_of(&rdma->route.addr.dst_storage);
}

/*
 * Names. On hosts without RDMA librdmacm resolves none; it frees results as if it had
 * allocated them, so these are allocated in the same way.
 */

static int copy_found_address(const struct sockaddr *from, socklen_t length,
			      struct sockaddr **to, socklen_t *length_out)
{
	*to = calloc(1, length);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, length);
	*length_out = length;
	return 0;
}

static int fill_addrinfo(struct rdma_addrinfo *info, const struct rdma_addrinfo *hints,
			 const struct addrinfo *found)
{
	int ret;

	info->ai_flags = hints ? hints->ai_flags : 0;
	info->ai_family = found->ai_family;
	info->ai_qp_type = hints && hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
	info->ai_port_space =
		hints && hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
	if (info->ai_flags & RAI_PASSIVE)
		return copy_found_address(found->ai_addr, found->ai_addrlen,
					  &info->ai_src_addr, &info->ai_src_len);
	ret = copy_found_address(found->ai_addr, found->ai_addrlen, &info->ai_dst_addr,
				 &info->ai_dst_len);
	if (!ret && hints && hints->ai_src_len)
		ret = copy_found_address(hints->ai_src_addr, hints->ai_src_len,
					 &info->ai_src_addr, &info->ai_src_len);
	return ret;
}

static int look_up(const char *node, const char *service,
		   const struct rdma_addrinfo *hints, struct rdma_addrinfo **info_out)
{
	struct addrinfo wanted = { .ai_socktype = SOCK_STREAM }, *found;
	struct rdma_addrinfo *info;
	int ret;

	if (hints && hints->ai_flags & RAI_PASSIVE)
		wanted.ai_flags |= AI_PASSIVE;
	if (hints && hints->ai_flags & RAI_NUMERICHOST)
		wanted.ai_flags |= AI_NUMERICHOST;
	if (hints && hints->ai_flags & RAI_FAMILY)
		wanted.ai_family = hints->ai_family;
	ret = getaddrinfo(node, service, &wanted, &found);
	if (ret)
		return ret;
	info = calloc(1, sizeof(*info));
	ret = info ? fill_addrinfo(info, hints, found) : EAI_MEMORY;
	freeaddrinfo(found);
	if (ret) {
		if (info)
			snt__real()->rdma_freeaddrinfo(info);
		return ret;
	}
	*info_out = info;
	return 0;
}

/* The addresses of the hints, where there is no name. */
static int take_hints(const struct rdma_addrinfo *hints,
		      struct rdma_addrinfo **info_out)
{
	bool passive = hints->ai_flags & RAI_PASSIVE;
	struct addrinfo found = {
		.ai_addr = passive ? hints->ai_src_addr : hints->ai_dst_addr,
		.ai_addrlen = passive ? hints->ai_src_len : hints->ai_dst_len,
	};
	struct rdma_addrinfo *info;
	int ret;

	if (!found.ai_addr || !found.ai_addrlen)
		return EAI_NONAME;
	found.ai_family = found.ai_addr->sa_family;
	info = calloc(1, sizeof(*info));
	if (!info)
		return EAI_MEMORY;
	ret = fill_addrinfo(info, hints, &found);
	if (ret)
		snt__real()->rdma_freeaddrinfo(info);
	else
		*info_out = info;
	return ret;
}

int rdma_getaddrinfo(const char *node, const char *service,
		     const struct rdma_addrinfo *hints, struct rdma_addrinfo **info_out)
{
	int ret = snt__real()->rdma_getaddrinfo(node, service, hints, info_out);

	if (!ret || BYPASSED())
		return ret;
	if (!node && !service)
		return hints ? take_hints(hints, info_out) : EAI_NONAME;
	return look_up(node, service, hints, info_out);
}

/*
 * Devices
 */

struct list {
	struct ibv_context **real;
	struct ibv_context *context[];
};

struct ibv_context **rdma_get_devices(int *count_out)
{
	struct snt__preload_devices soft;
	struct ibv_context **real = NULL;
	struct list *list;
	int count = 0;

	if (BYPASSED())
		return snt__real()->rdma_get_devices(count_out);
	if (count_out)
		*count_out = 0;
	if (snt__preload_wants_real() && snt__real()->rdma_get_devices)
		real = snt__real()->rdma_get_devices(&count);
	if (!real)
		count = 0;
	soft = snt__preload_devices();
	list = calloc(1, sizeof(*list) +
				 (count + soft.count + 1) * sizeof(list->context[0]));
	if (!list || (!real && !soft.count)) {
		if (real)
			snt__real()->rdma_free_devices(real);
		free(list);
		return NULL;
	}
	list->real = real;
	for (int i = 0; i < count; i++)
		list->context[i] = real[i];
	for (unsigned i = 0; i < soft.count; i++)
		list->context[count + i] = soft.context[i];
	if (count_out)
		*count_out = count + (int)soft.count;
	return list->context;
}

void rdma_free_devices(struct ibv_context **contexts)
{
	struct list *list;

	if (BYPASSED()) {
		snt__real()->rdma_free_devices(contexts);
		return;
	}
	list = snt__container(contexts, struct list, context);
	if (list->real)
		snt__real()->rdma_free_devices(list->real);
	free(list);
}
