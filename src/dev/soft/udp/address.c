/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dev/gid.h"
#include "util/err.h"

#define WORD_MAX 64

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool snt__udp_is_ipv4(const uint8_t gid[16])
{
	return !memcmp(gid, mapped, sizeof(mapped));
}

socklen_t snt__udp_sockaddr(const uint8_t gid[16], uint32_t scope, uint16_t port,
			    union snt__udp_sockaddr *out)
{
	memset(out, 0, sizeof(*out));
	if (snt__udp_is_ipv4(gid)) {
		out->v4.sin_family = AF_INET;
		out->v4.sin_port = htons(port);
		memcpy(&out->v4.sin_addr, gid + 12, 4);
		return sizeof(out->v4);
	}
	out->v6.sin6_family = AF_INET6;
	out->v6.sin6_port = htons(port);
	memcpy(&out->v6.sin6_addr, gid, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr))
		out->v6.sin6_scope_id = scope;
	return sizeof(out->v6);
}

void snt__udp_gid(const union snt__udp_sockaddr *from, uint8_t gid_out[16])
{
	if (from->any.sa_family == AF_INET) {
		memcpy(gid_out, mapped, sizeof(mapped));
		memcpy(gid_out + 12, &from->v4.sin_addr, 4);
	} else {
		memcpy(gid_out, &from->v6.sin6_addr, 16);
	}
}

/* Of the longest packet beside its payload, a WRITE with immediate: IPv6, UDP, BTH, RETH, the
 * immediate and the ICRC. */
#define OVERHEAD (40 + 8 + 12 + 16 + 4 + 4)

unsigned snt__udp_mtu(uint32_t ip_mtu)
{
	unsigned mtu = 5;

	while (mtu && (128u << mtu) + OVERHEAD > ip_mtu)
		mtu--;
	return mtu;
}

/*
 * Interfaces
 */

static bool has_address(const struct ifaddrs *entry)
{
	return entry->ifa_addr && (entry->ifa_addr->sa_family == AF_INET ||
				   entry->ifa_addr->sa_family == AF_INET6);
}

static bool is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* 0, or an errno with a sentence. */
static int ask_mtu(const char *interface, uint32_t *mtu_out)
{
	struct ifreq request = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	if (fd < 0 || ioctl(fd, SIOCGIFMTU, &request))
		error = errno;
	if (fd >= 0)
		close(fd);
	if (error)
		return snt__fail(error, "cannot ask for the MTU of %s: %s", interface,
				 strerror(error));
	*mtu_out = request.ifr_mtu < 0 ? 0 : request.ifr_mtu;
	return 0;
}

/* All but the MTU. */
static void fill_from_interface(const struct ifaddrs *entry,
				struct snt__udp_address *address)
{
	union snt__udp_sockaddr from = { 0 };

	memcpy(&from, entry->ifa_addr,
	       entry->ifa_addr->sa_family == AF_INET ? sizeof(from.v4)
						     : sizeof(from.v6));
	snt__udp_gid(&from, address->gid);
	address->netdev = if_nametoindex(entry->ifa_name);
	address->scope = is_link_local(address->gid) ? from.v6.sin6_scope_id : 0;
	address->ip_mtu = 0;
}

/* All of 127.0.0.0/8 is there, though the interface lists one of them. */
static bool is_at_address(const struct ifaddrs *entry, const uint8_t gid[16],
			  const struct snt__udp_address *address)
{
	if (!memcmp(address->gid, gid, 16))
		return true;
	return (entry->ifa_flags & IFF_LOOPBACK) && snt__udp_is_ipv4(address->gid) &&
	       snt__udp_is_ipv4(gid) && gid[12] == 127 && address->gid[12] == 127;
}

/* `interface` is NULL if any will do. */
static int find_address(const struct ifaddrs *list, const uint8_t gid[16],
			const char *interface, struct snt__udp_address *address_out)
{
	char text[SNT__GID_TEXT];

	for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		struct snt__udp_address address;

		if (!has_address(entry) ||
		    (interface && strcmp(entry->ifa_name, interface)))
			continue;
		fill_from_interface(entry, &address);
		if (!is_at_address(entry, gid, &address))
			continue;
		memcpy(address.gid, gid, 16);
		*address_out = address;
		return ask_mtu(entry->ifa_name, &address_out->ip_mtu);
	}
	snt__gid_text(gid, text);
	return interface ? snt__fail(EADDRNOTAVAIL, "%s does not have the address %s",
				     interface, text)
			 : snt__fail(EADDRNOTAVAIL,
				     "no interface of this host has the address %s",
				     text);
}

/*
 * Lists
 */

struct list {
	struct snt__value source;
	const struct ifaddrs *present;
	struct snt__udp_address *addresses;
	unsigned count, max;
};

static int add_to_list(struct list *list, const struct snt__udp_address *address)
{
	char text[SNT__GID_TEXT];

	for (unsigned i = 0; i < list->count; i++)
		if (!memcmp(list->addresses[i].gid, address->gid, 16))
			return snt__fail(EINVAL, "%s names %s twice",
					 list->source.origin,
					 snt__gid_text(address->gid, text));
	if (list->count == list->max)
		return snt__fail(E2BIG, "%s names more than %u addresses",
				 list->source.origin, list->max);
	list->addresses[list->count++] = *address;
	return 0;
}

/* Returns how many addresses were added. */
static int add_interface_addresses(struct list *list, const char *name, bool link_local)
{
	int added = 0;

	for (const struct ifaddrs *entry = list->present; entry;
	     entry = entry->ifa_next) {
		struct snt__udp_address address;
		int ret;

		if (!has_address(entry) || strcmp(entry->ifa_name, name))
			continue;
		fill_from_interface(entry, &address);
		if (is_link_local(address.gid) != link_local)
			continue;
		ret = ask_mtu(name, &address.ip_mtu);
		if (!ret)
			ret = add_to_list(list, &address);
		if (ret)
			return ret;
		added++;
	}
	return added;
}

/* ADDRESS or ADDRESS%INTERFACE; without an interface, *interface_out is NULL. */
static bool parse_address(const char *word, uint8_t gid[16], const char **interface_out)
{
	size_t length = strcspn(word, "%");
	char address[WORD_MAX];

	snprintf(address, sizeof(address), "%.*s", (int)length, word);
	*interface_out = word[length] ? word + length + 1 : NULL;
	if (inet_pton(AF_INET, address, gid + 12) == 1) {
		memcpy(gid, mapped, sizeof(mapped));
		return true;
	}
	return inet_pton(AF_INET6, address, gid) == 1;
}

static int add_list_word(struct list *list, const char *word)
{
	struct snt__udp_address address;
	const char *interface;
	uint8_t gid[16];
	int ret;

	if (parse_address(word, gid, &interface)) {
		ret = find_address(list->present, gid, interface, &address);
		return ret ? ret : add_to_list(list, &address);
	}
	if (!if_nametoindex(word))
		return snt__fail(EINVAL,
				 "%s: \"%s\" is neither an IP address nor a network "
				 "interface of this host",
				 list->source.origin, word);
	ret = add_interface_addresses(list, word, false);
	if (!ret)
		ret = add_interface_addresses(list, word, true);
	if (!ret)
		return snt__fail(EADDRNOTAVAIL, "%s: %s has no IP address",
				 list->source.origin, word);
	return ret < 0 ? ret : 0;
}

static int add_words(struct list *list)
{
	const char *at = list->source.text;

	for (;;) {
		size_t length = strcspn(at, ",");
		char word[WORD_MAX];
		int ret;

		if (!length || length >= sizeof(word))
			return snt__fail(EINVAL, "%s: \"%.*s\" is not an address",
					 list->source.origin, (int)length, at);
		snprintf(word, sizeof(word), "%.*s", (int)length, at);
		ret = add_list_word(list, word);
		if (ret || !at[length])
			return ret;
		at += length + 1;
	}
}

int snt__udp_addresses(struct snt__value source, struct snt__udp_address *addresses_out,
		       unsigned max)
{
	struct list list = { .source = source, .addresses = addresses_out, .max = max };
	struct ifaddrs *present;
	int ret;

	if (getifaddrs(&present))
		return snt__fail(errno, "cannot list network interfaces: %s",
				 strerror(errno));
	list.present = present;
	ret = add_words(&list);
	freeifaddrs(present);
	return ret ? ret : (int)list.count;
}

/* connect() binds a UDP socket to a source address; nothing is sent. */
int snt__udp_route(const struct sockaddr *target, uint8_t source_out[16])
{
	union snt__udp_sockaddr from = { 0 };
	socklen_t size = sizeof(from);
	int fd = socket(target->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, target,
		    target->sa_family == AF_INET ? sizeof(from.v4) : sizeof(from.v6)) ||
	    getsockname(fd, &from.any, &size))
		ret = -errno;
	close(fd);
	if (!ret)
		snt__udp_gid(&from, source_out);
	return ret;
}

void snt__udp_loopback_gid(unsigned number, uint8_t gid_out[16])
{
	memcpy(gid_out, mapped, sizeof(mapped));
	gid_out[12] = 127;
	gid_out[13] = 0;
	gid_out[14] = number / 254;
	gid_out[15] = number % 254 + 1;
}

int snt__udp_loopback(struct snt__udp_address *address_out)
{
	struct ifaddrs *present;
	uint8_t gid[16];
	int ret;

	snt__udp_loopback_gid(0, gid);
	if (getifaddrs(&present))
		return snt__fail(errno, "cannot list network interfaces: %s",
				 strerror(errno));
	ret = find_address(present, gid, NULL, address_out);
	freeifaddrs(present);
	return ret;
}
