/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin.h"

#define SETTING "SENNIT_NCCL_ADDRESS"

socklen_t address_length(const union address *address)
{
	return address->any.sa_family == AF_INET6 ? sizeof(address->v6)
						  : sizeof(address->v4);
}

void address_text(const union address *address, char *text, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (address->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
		snprintf(text, size, "[%s]:%u", host, ntohs(address->v6.sin6_port));
	} else {
		inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
		snprintf(text, size, "%s:%u", host, ntohs(address->v4.sin_port));
	}
}

/* Link-local addresses are of no use: their scope has another number at the peer. */
static bool parse_address(const char *text, union address *out)
{
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &out->v4.sin_addr) == 1)
		out->any.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1 &&
		 !IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr))
		out->any.sa_family = AF_INET6;
	return out->any.sa_family;
}

static bool has_usable_address(const struct ifaddrs *entry, union address *out)
{
	if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
		return false;
	memset(out, 0, sizeof(*out));
	if (entry->ifa_addr->sa_family == AF_INET)
		memcpy(&out->v4, entry->ifa_addr, sizeof(out->v4));
	else if (entry->ifa_addr->sa_family == AF_INET6)
		memcpy(&out->v6, entry->ifa_addr, sizeof(out->v6));
	else
		return false;
	return out->any.sa_family == AF_INET ||
	       !IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr);
}

/* The first address of an interface; without a name, of any but loopback. */
static bool find_interface(const char *name, union address *out)
{
	struct ifaddrs *list, *entry;

	if (getifaddrs(&list))
		return false;
	for (entry = list; entry; entry = entry->ifa_next) {
		if (name ? strcmp(entry->ifa_name, name) != 0
			 : (entry->ifa_flags & IFF_LOOPBACK) != 0)
			continue;
		if (has_usable_address(entry, out))
			break;
	}
	freeifaddrs(list);
	return entry;
}

static int listen_on(union address *address)
{
	socklen_t length = address_length(address);
	int fd = socket(address->any.sa_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (!bind(fd, &address->any, length) && !listen(fd, 64) &&
	    !getsockname(fd, &address->any, &length))
		return socket_keep(fd);
	err = errno;
	close(fd);
	return -err;
}

/* The address that the device has itself: peers that reach it there reach its host. */
static bool address_of_device(const struct snt_device *device, union address *out)
{
	struct snt_device_info info = SNT_INIT(info);
	struct snt_gid_info gid = SNT_INIT(gid);

	if (snt_device_query(device, &info))
		return false;
	for (uint32_t i = 0; !snt_device_query_gid(device, i, &gid); i++) {
		if ((int32_t)gid.index == info.gid_index)
			return gid.type != SNT_GID_IB && parse_address(gid.text, out);
	}
	return false;
}

static int listen_on_devices(uint32_t mask, union address *address_out)
{
	struct snt_ctx *ctx = process_ctx();
	int fd = -EADDRNOTAVAIL;

	for (unsigned i = 0; i < snt_ctx_device_count(ctx) && fd < 0; i++) {
		if (mask & UINT32_C(1) << i &&
		    address_of_device(snt_ctx_device(ctx, i), address_out))
			fd = listen_on(address_out);
	}
	return fd;
}

int address_listen(uint32_t device_mask, union address *address_out, char *why,
		   size_t why_size)
{
	const char *set = process_setting(SETTING);
	int fd;

	if (set) {
		if (!parse_address(set, address_out) &&
		    !find_interface(set, address_out)) {
			snprintf(why, why_size,
				 SETTING " is '%s': neither an IP address nor an "
					 "interface that has one",
				 set);
			return -EINVAL;
		}
		fd = listen_on(address_out);
	} else {
		fd = listen_on_devices(device_mask, address_out);
		if (fd < 0 && find_interface(NULL, address_out))
			fd = listen_on(address_out);
	}
	if (fd < 0)
		snprintf(why, why_size,
			 "%s: set " SETTING
			 " to an address or interface by which peers "
			 "reach this host",
			 strerror(-fd));
	return fd;
}
