/* SPDX-License-Identifier: MIT */
/* What a device and its QPs have lost, for queries. */
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include "dev/provider.h"
#include "dev/soft/core.h"
#include "dev/soft/qp.h"
#include "dev/soft/udp/device.h"

/* Packets that the kernel dropped because the socket was full. */
static uint64_t socket_drops(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(info);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size))
		return 0;
	return info[SK_MEMINFO_DROPS];
}

/* As programs ask for it; the kernel counts twice that. */
static uint32_t granted_buffer(const struct snt__udp_socket *socket)
{
	return (socket->receive_bytes + socket->spare_bytes) / 2;
}

void snt__udp_device_stats(struct snt__udp_device *device,
			   struct snt_device_stats *stats_out)
{
	struct snt__soft_stats core;

	*stats_out = (struct snt_device_stats){ 0 };
	if (device->foreign)
		return;
	snt__udp_lock(device);
	core = device->core->stats;
	stats_out->drops = socket_drops(device->socket.fd);
	snt__udp_unlock(device);
	stats_out->packets_in = core.packets_in;
	stats_out->packets_out = core.packets_out;
	stats_out->resends = core.resent + core.probe_packets;
	stats_out->timeouts = core.timeouts + core.probes;
	stats_out->duplicates = core.duplicates;
	stats_out->out_of_order = core.out_of_order;
	stats_out->receive_buffer = granted_buffer(&device->socket);
	stats_out->receive_buffer_wanted = SNT__UDP_BUFFER;
	stats_out->lost_by_fault = core.lost_by_fault;
	stats_out->probes = core.probe_packets;
}

void snt__udp_lane_stats(struct snt__udp_device *device, struct ibv_qp *ibv_qp,
			 struct snt__lane_stats *stats_out)
{
	const struct snt__soft_qp *qp = snt__soft_qp(ibv_qp);
	const struct snt__soft_round_trip *trip = &qp->requester.trip;

	*stats_out = (struct snt__lane_stats){ 0 };
	if (device->foreign)
		return;
	snt__udp_lock(device);
	stats_out->resends = qp->stats.resent;
	stats_out->timeouts = qp->stats.timeouts + qp->stats.probes;
	stats_out->duplicates = qp->stats.duplicates;
	stats_out->out_of_order = qp->stats.out_of_order;
	stats_out->round_trip_ns = trip->measured ? trip->mean : 0;
	stats_out->window = qp->requester.window * qp->mtu;
	snt__udp_unlock(device);
}
