/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_NOTIFY_H
#define SNT_VQP_NOTIFY_H

/*
 * Arming and looking, for a virtual CQ whose thread sleeps. Its physical CQs have one
 * channel for each device, and each of them is armed, or not, on its own. The layer
 * above, which sleeps, keeps its own state here as well, because a CQ may be created
 * and destroyed without that layer.
 *
 * Always arm first and look afterwards: an event reports what comes after a CQ was
 * armed, so CQEs that came before must be looked for. A look takes a physical CQE if
 * there is one, since verbs cannot look without taking; it is held until the next poll.
 */

struct snt_cq;
struct snt__physical;

/* Arms all physical CQs that are not armed. 0, or the errno of the device. */
int snt__cq_arm(struct snt_cq *cq);

/* Is there anything to poll? 1, 0, or -EIO. */
int snt__cq_look(struct snt_cq *cq);

/* An event of this physical CQ has come. */
void snt__cq_take_event(struct snt__physical *physical);

#endif
