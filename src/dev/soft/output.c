/* SPDX-License-Identifier: MIT */
/* Output of packets, in turn from all QPs that have some; and timers. */
#include "dev/soft/datagram.h"
#include "dev/soft/qp.h"

/* The most that a QP sends in one turn: long enough for offloads, short enough for the
 * other QPs. */
#define TURN 32

/* Answers go first, unless they took all of the last turn. */
static unsigned qp_output(struct snt__soft_qp *qp, struct snt__soft_packet *packets,
			  unsigned max, uint64_t now, bool hold)
{
	bool requests_first = qp->requests_first;
	unsigned count = 0;

	if (qp->ibv.qp_type == IBV_QPT_UD)
		return snt__soft_datagram_output(qp, packets, max);
	if (requests_first)
		count = snt__soft_request_output(qp, packets, max, now);
	count += snt__soft_respond_output(qp, packets + count, max - count, hold);
	qp->requests_first = !requests_first && count == max;
	if (!requests_first)
		count +=
			snt__soft_request_output(qp, packets + count, max - count, now);
	return count;
}

/* QPs whose acknowledgments wait are moved to `held`; NULL: acknowledgments do not
 * wait. */
static unsigned take_turns(struct snt__soft_device *device,
			   struct snt__soft_packet *packets, unsigned max, uint64_t now,
			   struct snt__link *held)
{
	unsigned count = 0;

	while (count < max && !snt__list_empty(&device->active)) {
		struct snt__soft_qp *qp = snt__container(device->active.next,
							 struct snt__soft_qp, active);
		unsigned turn = max - count < TURN ? max - count : TURN;
		unsigned sent;

		/* Back to the end of the list, if it may have more. */
		snt__unlink(&qp->active);
		sent = qp_output(qp, packets + count, turn, now, held);
		if (sent == turn)
			snt__soft_qp_activate(qp);
		else if (held && qp->responder.answer)
			snt__list_append(held, &qp->active);
		count += sent;
	}
	return count;
}

static unsigned take_packets(struct snt__soft_device *device,
			     struct snt__soft_packet *packets, unsigned max,
			     uint64_t now, struct snt__link *held)
{
	unsigned count = snt__soft_mad_output(device, packets, max, now);

	return count + take_turns(device, packets + count, max - count, now, held);
}

static bool loses_output(const struct snt__soft_device *device)
{
	return device->fault.out || !device->port_up;
}

/* A fault occurs after some of these packets. What would have followed is lost as well:
 * the driver does not come back for it. */
static unsigned output_until_fault(struct snt__soft_device *device,
				   struct snt__soft_packet *packets, unsigned count,
				   unsigned max, uint64_t now, struct snt__link *held)
{
	unsigned left = snt__soft_fault_sent(device, count);

	device->stats.lost_by_fault += count - left;
	while (left < max && loses_output(device)) {
		count = take_turns(device, packets + left, max - left, now, held);
		if (!count)
			break;
		device->stats.lost_by_fault += count;
	}
	return left;
}

/* Packets for a port that is down are dropped, so that retries run out. */
static unsigned output_packets(struct snt__soft_device *device,
			       struct snt__soft_packet *packets, unsigned max,
			       uint64_t now, struct snt__link *held)
{
	unsigned count;

	device->kicked = false;
	if (max > SNT__SOFT_OUTPUT_MAX)
		max = SNT__SOFT_OUTPUT_MAX;
	count = take_packets(device, packets, max, now, held);
	while (count && loses_output(device)) {
		device->stats.lost_by_fault += device->fault.out ? count : 0;
		count = take_packets(device, packets, max, now, held);
	}
	if (device->fault.pending)
		count = output_until_fault(device, packets, count, max, now, held);
	device->stats.packets_out += count;
	return count;
}

unsigned snt__soft_output(struct snt__soft_device *device,
			  struct snt__soft_packet *packets, unsigned max, uint64_t now)
{
	return output_packets(device, packets, max, now, NULL);
}

unsigned snt__soft_output_posted(struct snt__soft_device *device,
				 struct snt__soft_packet *packets, unsigned max,
				 uint64_t now)
{
	struct snt__link held;
	unsigned count;

	snt__list_init(&held);
	count = output_packets(device, packets, max, now, &held);
	while (!snt__list_empty(&held)) {
		struct snt__link *first = held.next;

		snt__unlink(first);
		snt__list_append(&device->active, first);
	}
	return count;
}

uint64_t snt__soft_deadline(struct snt__soft_device *device)
{
	const struct snt__soft_mads *mads = &device->mads;
	uint64_t deadline = snt__soft_timers_deadline(&device->timers);
	uint64_t agent =
		mads->agent ? mads->agent->deadline(mads->arg) : SNT__SOFT_NEVER;

	return agent < deadline ? agent : deadline;
}

void snt__soft_timer(struct snt__soft_device *device, uint64_t now)
{
	const struct snt__soft_mads *mads = &device->mads;
	struct snt__soft_timer *timer;

	while ((timer = snt__soft_timers_expired(&device->timers, now)))
		snt__soft_timeout(snt__container(timer, struct snt__soft_qp, timer),
				  now);
	if (mads->agent)
		mads->agent->timer(mads->arg, now);
}
