/* SPDX-License-Identifier: MIT */
#include "lib/sim/switch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/frame.h"
#include "lib/sim/trace.h"

/*
 * Routes
 */

#define ROUTES_FIRST 16

/* Where a GID is, or the empty place where it belongs. */
static struct snt__sim_route *find_route(struct snt__sim_route *routes, unsigned room,
					 const uint8_t gid[16])
{
	unsigned at;
	uint64_t words[2];

	memcpy(words, gid, sizeof(words));
	at = snt__sim_trace_word(snt__sim_trace_word(0, words[0]), words[1]) >> 40;
	for (;; at++) {
		struct snt__sim_route *route = &routes[at & (room - 1)];

		if (!route->device || !memcmp(route->gid, gid, sizeof(route->gid)))
			return route;
	}
}

/* Moves those that are kept to a new table, of which at most half is used. */
static int rebuild_routes(struct snt__sim *sim, unsigned room,
			  const struct snt__sim_device *without)
{
	struct snt__sim_route *routes = calloc(room, sizeof(*routes));
	unsigned count = 0;

	if (!routes)
		return -ENOMEM;
	for (unsigned i = 0; i < sim->route_room; i++) {
		const struct snt__sim_route *route = &sim->routes[i];

		if (!route->device || route->device == without)
			continue;
		*find_route(routes, room, route->gid) = *route;
		count++;
	}
	free(sim->routes);
	sim->routes = routes;
	sim->route_room = room;
	sim->route_count = count;
	return 0;
}

int snt__sim_route_add(struct snt__sim *sim, const uint8_t gid[16],
		       struct snt__sim_device *device)
{
	unsigned room = sim->route_room ? 2 * sim->route_room : ROUTES_FIRST;
	struct snt__sim_route *route;

	if (2 * (sim->route_count + 1) > sim->route_room &&
	    rebuild_routes(sim, room, NULL))
		return -ENOMEM;
	route = find_route(sim->routes, sim->route_room, gid);
	if (route->device)
		return -EEXIST;
	memcpy(route->gid, gid, sizeof(route->gid));
	route->device = device;
	sim->route_count++;
	return 0;
}

/* Without memory for a new table the old one stays, with gaps in chains: entries of
 * others may not be found any more, and their packets are lost. */
void snt__sim_route_remove(struct snt__sim *sim, const struct snt__sim_device *device)
{
	if (!sim->route_room || !rebuild_routes(sim, sim->route_room, device))
		return;
	for (unsigned i = 0; i < sim->route_room; i++)
		if (sim->routes[i].device == device)
			sim->routes[i].device = NULL;
}

/*
 * On the way
 */

static void capture_packet(struct snt__sim *sim, const struct snt__sim_device *device,
			   bool inbound, const struct snt__sim_packet *packet,
			   const char *comment)
{
	if (sim->capture)
		snt__sim_capture_packet(sim->capture, device->interface, inbound,
					sim->now, packet->bytes, packet->length,
					comment);
}

static void drop_packet(struct snt__sim *sim, struct snt__sim_packet *packet,
			enum snt__sim_drop why)
{
	sim->stats.dropped[why]++;
	capture_packet(sim, packet->from, false, packet, snt__sim_drop_text(why));
	snt__sim_packet_give(&sim->pool, packet);
}

/* The link after so many others. NULL: it is there. */
static struct snt__sim_link *link_at(const struct snt__sim_packet *packet)
{
	struct snt__sim_device *from = packet->from, *to = packet->to;
	struct snt__sim_link *way[SNT__SIM_HOPS_MAX];
	unsigned count = 0;

	way[count++] = &from->out;
	if (from->trunk != to->trunk) {
		if (from->trunk)
			way[count++] = &from->trunk->up;
		if (to->trunk)
			way[count++] = &to->trunk->down;
	}
	way[count++] = &to->in;
	return packet->hop < count ? way[packet->hop] : NULL;
}

/* Does it matter to others when exactly a packet comes to a link? If not, no event is
 * spent on it. */
static bool has_order(const struct snt__sim_link *link)
{
	return link->opts.mbps || link->opts.jitter_ns || link->opts.mix_ns;
}

static void arrive_at(struct snt__sim *sim, struct snt__sim_packet *packet, uint64_t at)
{
	if (snt__sim_queue_add(&sim->queue, at, SNT__SIM_PACKET, packet))
		drop_packet(sim, packet, SNT__SIM_DROP_MEMORY);
}

static void duplicate_packet(struct snt__sim *sim, const struct snt__sim_packet *packet,
			     uint64_t at)
{
	struct snt__sim_packet *twin = snt__sim_packet_take(&sim->pool);

	if (!twin)
		return;
	sim->stats.duplicated++;
	*twin = (struct snt__sim_packet){ .from = packet->from,
					  .to = packet->to,
					  .hop = packet->hop,
					  .flags = packet->flags | SNT__SIM_COPY,
					  .length = packet->length,
					  .flow = packet->flow };
	memcpy(twin->bytes, packet->bytes, packet->length);
	arrive_at(sim, twin, at);
}

/* Over this link and all after it that need not be waited for. */
static void forward_packet(struct snt__sim *sim, struct snt__sim_packet *packet)
{
	uint64_t at = sim->now;
	struct snt__sim_link *link;

	while ((link = link_at(packet)) && (at == sim->now || !has_order(link))) {
		struct snt__sim_fate fate =
			snt__sim_link_carry(link, at, packet->length, packet->flow);

		if (fate.drop) {
			drop_packet(sim, packet, fate.drop);
			return;
		}
		packet->hop++;
		if (fate.arrival_copy != UINT64_MAX)
			duplicate_packet(sim, packet, fate.arrival_copy);
		if (fate.damage) {
			sim->stats.corrupted++;
			packet->flags |= SNT__SIM_CORRUPTED;
			snt__sim_damage(packet->bytes, packet->length, fate.damage);
		}
		at = fate.arrival;
	}
	arrive_at(sim, packet, at);
}

void snt__sim_switch_send(struct snt__sim_device *from,
			  const struct snt__soft_packet *out)
{
	struct snt__sim *sim = from->sim;
	struct snt__sim_packet *packet = snt__sim_packet_take(&sim->pool);

	sim->stats.sent++;
	if (!packet) {
		sim->stats.dropped[SNT__SIM_DROP_MEMORY]++;
		return;
	}
	packet->from = from;
	packet->hop = 0;
	packet->flags = 0;
	packet->flow = out->header[5] << 16 | out->header[6] << 8 | out->header[7];
	packet->length =
		snt__sim_frame_write(out, from->identification++, packet->bytes);
	sim->stats.sent_bytes += packet->length;
	from->sent_bytes += packet->length;
	capture_packet(sim, from, false, packet, NULL);
	packet->to =
		find_route(sim->routes, sim->route_room, out->path->target)->device;
	if (packet->to)
		forward_packet(sim, packet);
	else
		drop_packet(sim, packet, SNT__SIM_DROP_ROUTE);
}

static void deliver_to_device(struct snt__sim *sim, struct snt__sim_packet *packet)
{
	struct snt__sim_device *to = packet->to;
	struct snt__sim_frame frame;

	if (to->in.cut) {
		drop_packet(sim, packet, SNT__SIM_DROP_CUT);
		return;
	}
	if (to->host->dead) {
		drop_packet(sim, packet, SNT__SIM_DROP_DEAD);
		return;
	}
	sim->hash = snt__sim_trace(sim->hash, sim->now, packet->bytes, packet->length);
	if (snt__sim_frame_read(packet->bytes, packet->length, &frame)) {
		drop_packet(sim, packet, SNT__SIM_DROP_CORRUPT);
		return;
	}
	capture_packet(sim, to, true, packet,
		       packet->flags & SNT__SIM_COPY ? "copy" : NULL);
	sim->stats.tolerated += !!(packet->flags & SNT__SIM_CORRUPTED);
	sim->stats.delivered++;
	sim->stats.delivered_bytes += packet->length;
	to->delivered_bytes += packet->length;
	snt__sim_device_receive(to, &frame.path, frame.bytes, frame.length);
	snt__sim_packet_give(&sim->pool, packet);
}

void snt__sim_switch_arrive(struct snt__sim *sim, struct snt__sim_packet *packet)
{
	if (link_at(packet))
		forward_packet(sim, packet);
	else
		deliver_to_device(sim, packet);
}
