/* SPDX-License-Identifier: MIT */
/* Where a context finds soft devices: at the addresses that a setting names, or at the
 * first pair of loopback addresses that is free. */
#include "dev/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sennit/api.h>

#include "dev/gid.h"
#include "dev/soft/cq.h"
#include "dev/soft/udp/device.h"
#include "util/err.h"

/*
 * A list has its devices running, so that no other program takes their addresses before
 * they are opened. They end when the last context that opened them is closed, or with
 * the list.
 */
#define NAME_SIZE 16

struct devices {
	unsigned count;
	bool shm, shm_pull;
	struct snt__udp_device *device[SNT_DEVICES_MAX];
	char name[SNT_DEVICES_MAX][NAME_SIZE];
};

static void remove_devices(struct devices *devices)
{
	while (devices->count)
		snt__udp_device_put(devices->device[--devices->count]);
}

/* `take` is snt__udp_device_create() for an address that is not shared with other
 * contexts. */
static int add_listed_device(struct devices *devices,
			     const struct snt__udp_address *address,
			     int (*take)(const struct snt__udp_opts *opts,
					 struct snt__udp_device **device_out))
{
	char *name = devices->name[devices->count];
	struct snt__udp_opts opts = { .name = name,
				      .address = address,
				      .join = take == snt__udp_device_take,
				      .shm = devices->shm,
				      .shm_pull = devices->shm_pull };
	int ret;

	snprintf(name, NAME_SIZE, "soft%u", devices->count);
	ret = take(&opts, &devices->device[devices->count]);
	if (!ret)
		devices->count++;
	return ret;
}

/*
 * Is the port taken by the kernel's rxe? It binds to all addresses; the owner of a
 * socket cannot be queried, but the presence of the module can be seen. It is visible
 * from every network namespace, but has the port in one only: there, no other address
 * is free either.
 */
static bool rxe_has_port(void)
{
	struct snt__udp_address other = { 0 };
	struct snt__udp_socket socket;
	int ret;

	if (access("/sys/module/rdma_rxe", F_OK))
		return false;
	snt__udp_loopback_gid(SNT__UDP_LOOPBACK_MAX - 1, other.gid);
	ret = snt__udp_socket_open(&other, SNT__UDP_BUFFER, &socket);
	if (!ret)
		close(socket.fd);
	return ret == -EADDRINUSE;
}

static int port_taken(const char *where)
{
	bool rxe = rxe_has_port();

	return snt__fail(
		EADDRINUSE, "UDP port %u is taken on %s, %s", SNT__WIRE_PORT, where,
		rxe ? "by the kernel module rdma_rxe, it seems: use its devices, "
		      "unload it, or run in another network namespace"
		    : "by another program or user, or by this one with another "
		      "SENNIT_SOFT_SHM: choose another address with "
		      "SENNIT_SOFT_ADDRESSES; \"ss -ulpn sport = 4791\" shows the owner");
}

/* An IPv6 address exists for a second or two before it can be used. */
static int not_bound(const char *origin, const uint8_t gid[16], const char *text)
{
	return snt__fail(EADDRNOTAVAIL,
			 "%s: no socket can be bound to %s; is its interface up%s?",
			 origin, text,
			 snt__udp_is_ipv4(gid) ? ""
					       : ", and has it been for some seconds");
}

static int add_named(struct devices *devices, struct snt__value list)
{
	struct snt__udp_address addresses[SNT_DEVICES_MAX];
	int count = snt__udp_addresses(list, addresses, SNT_DEVICES_MAX);

	if (count < 0)
		return count;
	for (int i = 0; i < count; i++) {
		int ret =
			add_listed_device(devices, &addresses[i], snt__udp_device_take);
		char text[SNT__GID_TEXT];

		snt__gid_text(addresses[i].gid, text);
		if (ret == -EADDRINUSE)
			return port_taken(text);
		if (ret == -EADDRNOTAVAIL)
			return not_bound(list.origin, addresses[i].gid, text);
		if (ret)
			return ret;
	}
	return 0;
}

/* Some loopback interfaces have a single address instead of 127.0.0.0/8. */
static int loopback_absent(const struct snt__udp_address *address)
{
	char text[SNT__GID_TEXT];

	return snt__fail(EADDRNOTAVAIL,
			 "no socket can be bound to %s, and soft devices take two "
			 "loopback addresses unless SENNIT_SOFT_ADDRESSES names others",
			 snt__gid_text(address->gid, text));
}

/* Two devices, so that every host has what a host with two NICs has. */
static int add_pair(struct devices *devices)
{
	struct snt__udp_address address;
	int ret = snt__udp_loopback(&address);

	for (unsigned pair = 0; !ret && pair < SNT__UDP_LOOPBACK_MAX / 2; pair++) {
		for (unsigned i = 0; !ret && i < 2; i++) {
			snt__udp_loopback_gid(2 * pair + i, address.gid);
			ret = add_listed_device(devices, &address,
						snt__udp_device_create);
		}
		if (!ret)
			return 0;
		remove_devices(devices);
		if (ret == -EADDRNOTAVAIL)
			return loopback_absent(&address);
		if (ret == -EADDRINUSE)
			ret = 0;
	}
	return ret ? ret : port_taken("all loopback addresses");
}

static int choose_shm(struct devices *devices)
{
	static const char *const words[] = { "on", "pull", "off", NULL };
	int word =
		snt__setting_word(snt__setting_get(SNT__SETTING_SOFT_SHM, NULL, NULL),
				  words);

	if (word < 0)
		return word;
	devices->shm = word < 2;
	devices->shm_pull = word == 1;
	return 0;
}

static int soft_list(struct snt__value addresses, struct snt__listing *listing_out)
{
	struct devices *devices = calloc(1, sizeof(*devices));
	int ret;

	if (!devices)
		return snt__fail(ENOMEM, "no memory for a list of soft devices");
	ret = choose_shm(devices);
	if (!ret)
		ret = *addresses.text ? add_named(devices, addresses)
				      : add_pair(devices);
	if (ret) {
		remove_devices(devices);
		free(devices);
		return ret;
	}
	listing_out->handle = devices;
	listing_out->count = devices->count;
	return 0;
}

static void soft_unlist(struct snt__listing *listing)
{
	remove_devices(listing->handle);
	free(listing->handle);
}

static struct snt__udp_device *listed_udp_device(const struct snt__listing *listing,
						 unsigned position)
{
	return ((struct devices *)listing->handle)->device[position];
}

static const char *soft_name(const struct snt__listing *listing, unsigned position)
{
	return ((struct devices *)listing->handle)->name[position];
}

static int soft_open_device(const struct snt__listing *listing, unsigned position,
			    struct ibv_context **context_out)
{
	struct snt__udp_device *device = listed_udp_device(listing, position);
	int ret = snt__soft_context_open(device->core, soft_name(listing, position),
					 context_out);

	if (ret)
		return snt__fail(-ret, "%s cannot be opened: %s",
				 soft_name(listing, position), strerror(-ret));
	snt__udp_device_use(device);
	return 0;
}

static int soft_close_device(struct ibv_context *context)
{
	struct snt__udp_device *device = snt__udp_device_of(context);

	snt__soft_context_close(context);
	snt__udp_device_put(device);
	return 0;
}

static enum snt_path soft_path(struct ibv_context *context, struct ibv_qp *qp)
{
	return snt__udp_device_path(snt__udp_device_of(context), qp);
}

static void soft_device_stats(struct ibv_context *context,
			      struct snt_device_stats *stats_out)
{
	snt__udp_device_stats(snt__udp_device_of(context), stats_out);
}

static void soft_lane_stats(struct ibv_context *context, struct ibv_qp *qp,
			    struct snt__lane_stats *stats_out)
{
	snt__udp_lane_stats(snt__udp_device_of(context), qp, stats_out);
}

static int soft_fail(struct ibv_context *context, enum snt_fault kind,
		     uint64_t after_sent)
{
	return snt__udp_device_fail(snt__udp_device_of(context), kind, after_sent);
}

static int soft_heal(struct ibv_context *context)
{
	return snt__udp_device_heal(snt__udp_device_of(context));
}

static unsigned rx_borrow(struct ibv_context *context, int fds[SNT__RX_FDS],
			  struct ibv_comp_channel *channel)
{
	return snt__udp_rx_borrow(snt__udp_device_of(context), fds, channel);
}

static unsigned rx_watch(struct ibv_context *context, int fds[SNT__RX_FDS],
			 unsigned readable)
{
	return snt__udp_rx_watch(snt__udp_device_of(context), fds, readable);
}

static void rx_return(struct ibv_context *context, unsigned readable,
		      struct ibv_comp_channel *channel)
{
	snt__udp_rx_return(snt__udp_device_of(context), readable, channel);
}

const struct snt__provider snt__provider_soft = {
	.kind = SNT_DEVICE_SOFT,
	.control = snt__soft_control,
	.list = soft_list,
	.unlist = soft_unlist,
	.name = soft_name,
	.open = soft_open_device,
	.close = soft_close_device,
	.path = soft_path,
	.device_stats = soft_device_stats,
	.lane_stats = soft_lane_stats,
	.fail = soft_fail,
	.heal = soft_heal,
	.rx_borrow = rx_borrow,
	.rx_watch = rx_watch,
	.rx_return = rx_return,
	.take_cq_event = snt__soft_take_cq_event,
};
