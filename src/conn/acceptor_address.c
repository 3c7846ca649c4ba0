/* SPDX-License-Identifier: MIT */
/* The addresses at which peers reach a listener. All are in the form of GIDs: IPv4 ones
 * are mapped. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "conn/carrier.h"
#include "dev/gid.h"
#include "util/err.h"

/* More than the devices of a context have; further network interfaces are left out. */
#define ADDRESSES_MAX 64

struct address {
	uint8_t gid[16];
	int score;
};

struct address_list {
	const struct snt__acceptor *acceptor;
	unsigned count;
	struct address address[ADDRESSES_MAX]; /* the highest score first */
};

static bool is_ipv4_gid(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static bool is_unspecified(const uint8_t gid[16])
{
	static const uint8_t any[16];
	unsigned from = is_ipv4_gid(gid) ? 12 : 0;

	return memcmp(gid + from, any, sizeof(any) - from) == 0;
}

static void gid_of_address(const struct sockaddr *address, uint8_t gid_out[16])
{
	memset(gid_out, 0, 16);
	if (address->sa_family == AF_INET6) {
		memcpy(gid_out, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
		return;
	}
	memset(gid_out + 10, 0xff, 2);
	memcpy(gid_out + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
}

/* Does a listener on all addresses accept this one's family, too? IPv6's unspecified
 * address covers IPv4; IPv4's does not cover IPv6, even if it is mapped. */
static bool is_heard(const struct snt__acceptor *acceptor, const uint8_t gid[16])
{
	uint8_t bound[16];

	gid_of_address((const struct sockaddr *)&acceptor->bound, bound);
	return !is_ipv4_gid(bound) || is_ipv4_gid(gid);
}

/* Addresses with equal scores stay in the order in which they were added. */
static void add_address(struct address_list *list, const uint8_t gid[16], int score)
{
	unsigned at = list->count;

	for (unsigned i = 0; i < list->count; i++)
		if (memcmp(list->address[i].gid, gid, 16) == 0)
			return;
	if (score < 0 || list->count == ADDRESSES_MAX)
		return;
	for (; at && list->address[at - 1].score < score; at--)
		list->address[at] = list->address[at - 1];
	memcpy(list->address[at].gid, gid, 16);
	list->address[at].score = score;
	list->count++;
}

/* The GID that the device's lanes have, if the listener accepts it; else the best that
 * it does. */
static const struct snt_gid_info *find_accepted_gid(
	const struct snt__acceptor *acceptor, const struct snt__port *port)
{
	const struct snt_gid_info *best = NULL;

	for (unsigned i = 0; i < port->info.gid_count; i++) {
		const struct snt_gid_info *gid = &port->gid[i];

		if (gid->type == SNT_GID_IB || !is_heard(acceptor, gid->raw))
			continue;
		if ((int)i == port->gid_best)
			return gid;
		if (!best || gid->score > best->score)
			best = gid;
	}
	return best;
}

static void add_devices(struct address_list *list)
{
	const struct snt_ctx *ctx = list->acceptor->conn_loop->ctx;

	for (unsigned i = 0; i < ctx->device_count; i++) {
		const struct snt_device *device = ctx->device[i];
		const struct snt_gid_info *gid =
			find_accepted_gid(list->acceptor, snt__port(device));

		if (gid && (device->control.cm || !list->acceptor->table->by_cm))
			add_address(list, gid->raw, gid->score);
	}
}

/* Is the interface IP over InfiniBand on a device? Interfaces below RoCE do not count:
 * each of their addresses at which a device is reached is a GID of that device. */
static bool is_of_device(const struct snt_ctx *ctx, const char *interface)
{
	unsigned index = if_nametoindex(interface);

	for (unsigned i = 0; i < ctx->device_count; i++) {
		const struct snt__port *port = snt__port(ctx->device[i]);

		for (unsigned j = 0; j < port->info.gid_count; j++)
			if (index && port->gid[j].type == SNT_GID_IB &&
			    port->gid[j].netdev == index)
				return true;
	}
	return false;
}

static void add_interface_address(struct address_list *list,
				  const struct ifaddrs *interface)
{
	struct ibv_gid_entry entry = { .gid_type = IBV_GID_TYPE_ROCE_V2 };
	const struct sockaddr *address = interface->ifa_addr;
	struct snt_gid_info judged;

	if (!address || !(interface->ifa_flags & IFF_UP) ||
	    (address->sa_family != AF_INET && address->sa_family != AF_INET6))
		return;
	if (list->acceptor->table->by_cm &&
	    !is_of_device(list->acceptor->conn_loop->ctx, interface->ifa_name))
		return;
	gid_of_address(address, entry.gid.raw);
	snt__gid_judge(&entry, &judged);
	if (is_heard(list->acceptor, judged.raw))
		add_address(list, judged.raw,
			    interface->ifa_flags & IFF_LOOPBACK ? 0 : judged.score);
}

static int list_addresses(struct address_list *list)
{
	struct ifaddrs *interfaces;
	uint8_t bound[16];

	gid_of_address((const struct sockaddr *)&list->acceptor->bound, bound);
	if (!is_unspecified(bound)) {
		add_address(list, bound, 0);
		return 0;
	}
	add_devices(list);
	if (list->count)
		return 0;
	if (getifaddrs(&interfaces))
		return snt__fail(errno, "cannot list network interfaces: %s",
				 strerror(errno));
	for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next)
		add_interface_address(list, at);
	freeifaddrs(interfaces);
	return 0;
}

int snt__acceptor_address(const struct snt__acceptor *acceptor, unsigned position,
			  char *buffer, size_t size)
{
	struct address_list list = { .acceptor = acceptor };
	char text[SNT__GID_TEXT];
	int ret = list_addresses(&list);
	size_t length;

	if (ret)
		return ret;
	if (position >= list.count)
		return snt__fail(ENOENT, "no address %u: the listener has %u", position,
				 list.count);
	snt__gid_text(list.address[position].gid, text);
	length = strlen(text) + 1;
	if (length > size)
		return snt__fail(
			ENOSPC,
			"the address %s needs %zu bytes, and the buffer has %zu", text,
			length, size);
	memcpy(buffer, text, length);
	return 0;
}
