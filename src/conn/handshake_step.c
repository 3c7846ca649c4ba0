/* SPDX-License-Identifier: MIT */
/* The meaning of messages, and the steps from HELLO to READY. */
#include "conn/handshake_step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS_MAX   4
#define MTU_FALLBACK 1024

#define PING_SHARE 4 /* of the detection time */

static void act_in_state(struct snt__handshake *hs, enum snt__handshake_state state,
			 enum snt__handshake_action action)
{
	hs->state = state;
	hs->action = action;
}

/*
 * HELLO and WELCOME
 */

static bool agree_on_secret(struct snt__handshake *hs)
{
	if (hs->peer_hello.secret == hs->hello.secret)
		return true;
	snt__handshake_end(hs, SNT__END_SECRET, -EACCES,
			   hs->hello.secret
				   ? "a secret is needed, but one end has none"
				   : "one end has a secret, the other has none",
			   NULL, 0);
	return false;
}

static bool derive_keys(struct snt__handshake *hs)
{
	if (snt__hs_derive(hs))
		return true;
	hs->keyed = false;
	snt__handshake_end(hs, SNT__END_FAILED, -EIO,
			   "keys cannot be made of the secret", NULL, 0);
	return false;
}

static void take_hello(struct snt__handshake *hs, const struct snt__header *header,
		       const uint8_t *body)
{
	const char *fault = snt__hello_unpack(body, header->length, &hs->peer_hello);

	if (!fault && (header->tagged || header->session))
		fault = "it has a tag or a session";
	if (fault) {
		hs->peer_hello.identity = 0; /* no peer to tell */
		snt__hs_blame(hs, header->type, fault);
		return;
	}
	if (!agree_on_secret(hs))
		return;
	if (hs->peer_hello.version < hs->hello.version)
		hs->hello.version = hs->peer_hello.version;
	if (!derive_keys(hs))
		return;
	snt__hs_send(hs, SNT__MESSAGE_WELCOME);
	hs->state = SNT__HS_OFFER;
}

static void take_welcome(struct snt__handshake *hs, const struct snt__header *header,
			 const uint8_t *message)
{
	const char *fault = snt__hello_unpack(message + SNT__HEADER_SIZE,
					      header->length, &hs->peer_hello);

	if (fault) {
		snt__hs_blame(hs, header->type, fault);
		return;
	}
	if (!agree_on_secret(hs))
		return;
	if (hs->peer_hello.version > hs->hello.version) {
		snt__handshake_end(hs, SNT__END_VERSION, -EPROTONOSUPPORT,
				   "the peer speaks a version that we did not offer",
				   NULL, 0);
		return;
	}
	if (!derive_keys(hs))
		return;
	if (header->session != hs->session) {
		snt__hs_blame(hs, header->type,
			      "its session does not match the nonces");
		return;
	}
	if (header->tagged != hs->keyed ||
	    (hs->keyed &&
	     !snt__hs_proves(hs, message, SNT__HEADER_SIZE + (size_t)header->length))) {
		/* The peer could not check our tags either. */
		hs->keyed = false;
		snt__handshake_end(hs, SNT__END_SECRET, -EACCES,
				   "the two ends have different secrets", NULL, 0);
		return;
	}
	snt__hs_send(hs, SNT__MESSAGE_OFFER);
	hs->state = SNT__HS_OFFER;
}

/*
 * OFFER and ANSWER
 */

static bool schemes_fit(struct snt__handshake *hs)
{
	char text[SNT__END_TEXT_MAX];

	if (hs->ours.scheme == hs->theirs.scheme)
		return true;
	snprintf(text, sizeof(text), "the schemes differ: %s at the end that %s",
		 hs->ours.scheme == SNT_SCHEME_SPRAY ? "SPRAY" : "DQPLB",
		 hs->connects ? "connects" : "accepts");
	snt__handshake_end(hs, SNT__END_MISMATCH, -EINVAL, text, NULL, 0);
	return false;
}

/* The two contracts differ, so that one end alone cannot choose. */
static bool pass_through_fits(struct snt__handshake *hs)
{
	char text[SNT__END_TEXT_MAX];
	bool ours = hs->ours.flags & SNT_QP_PASS_THROUGH;

	if (ours == (bool)(hs->theirs.flags & SNT_QP_PASS_THROUGH))
		return true;
	snprintf(text, sizeof(text),
		 "only the end that %s has SNT_QP_PASS_THROUGH; set it at both, or at "
		 "none",
		 ours == hs->connects ? "connects" : "accepts");
	snt__handshake_end(hs, SNT__END_MISMATCH, -EINVAL, text, NULL, 0);
	return false;
}

static void take_offer(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	const char *fault = snt__offer_unpack(body, length, &hs->theirs);

	if (fault)
		snt__hs_blame(hs, SNT__MESSAGE_OFFER, fault);
	else
		act_in_state(hs, SNT__HS_ASK, SNT__DO_ASK);
}

void snt__handshake_accept(struct snt__handshake *hs, const struct snt__offer *offer)
{
	if (hs->state != SNT__HS_ASK)
		return;
	hs->ours = *offer;
	if (!schemes_fit(hs) || !pass_through_fits(hs))
		return;
	hs->mtu = snt__plan_mtu(&hs->ours, &hs->theirs);
	snt__hs_send(hs, SNT__MESSAGE_ANSWER);
	hs->state = SNT__HS_PROBE_QPS;
}

/*
 * Trials, by the end that connects
 */

static unsigned count_works(const struct snt__handshake *hs)
{
	unsigned count = 0;

	for (unsigned i = 0; i < hs->trials.count; i++)
		count += snt__trial_works(&hs->trials.trial[i]);
	return count;
}

/* Untried pairs, up to that many. */
static unsigned choose_batch(struct snt__handshake *hs, unsigned max)
{
	unsigned count = 0;

	for (unsigned i = 0; i < hs->trials.count && count < max; i++)
		if (hs->trials.trial[i].ours == SNT__VERDICT_NONE)
			hs->batch[count++] = (uint8_t)i;
	return count;
}

static bool fails_by_mtu(const struct snt__trial *trial)
{
	return trial->ours == SNT__VERDICT_MTU || trial->theirs == SNT__VERDICT_MTU;
}

/* A network in between does not carry the MTU that both ends have. */
static unsigned fall_back_to_fewer(struct snt__handshake *hs)
{
	if (hs->mtu <= MTU_FALLBACK)
		return 0;
	hs->mtu = MTU_FALLBACK;
	for (unsigned i = 0; i < hs->trials.count; i++)
		if (fails_by_mtu(&hs->trials.trial[i]))
			hs->trials.trial[i].ours = hs->trials.trial[i].theirs =
				SNT__VERDICT_NONE;
	return choose_batch(hs, SNT__PAIRS_MAX);
}

static void give_up_without_pairs(struct snt__handshake *hs)
{
	char text[SNT__END_TEXT_MAX];
	const struct snt__trial *trial = hs->trials.trial;
	unsigned verdict =
		trial->ours == SNT__VERDICT_GOOD ? trial->theirs : trial->ours;

	snprintf(text, sizeof(text),
		 "no pair of devices works, of %u; the first, %u with %u: %s",
		 hs->trials.count, trial->pair.local, trial->pair.remote,
		 snt__verdict_text(verdict));
	snt__handshake_end(hs, SNT__END_UNREACHABLE, -EHOSTUNREACH, text, NULL, 0);
}

static void begin_plan(struct snt__handshake *hs)
{
	if (!snt__plan_make(&hs->ours, &hs->theirs, &hs->trials, hs->mtu, &hs->plan))
		give_up_without_pairs(hs);
	else
		act_in_state(hs, SNT__HS_PLAN, SNT__DO_MAKE);
}

static void begin_round(struct snt__handshake *hs)
{
	unsigned enough = snt__plan_enough(&hs->ours, &hs->theirs);
	unsigned works = count_works(hs);
	unsigned count = 0;

	if (works < enough)
		count = choose_batch(hs, hs->probe.round ? SNT__PAIRS_MAX : enough);
	if (!count && !works)
		count = fall_back_to_fewer(hs);
	if (!count || hs->probe.round == ROUNDS_MAX) {
		begin_plan(hs);
		return;
	}
	hs->probe.round++;
	hs->probe.count = (uint8_t)count;
	hs->probe.mtu = hs->mtu;
	for (unsigned i = 0; i < count; i++) {
		struct snt__pair pair = hs->trials.trial[hs->batch[i]].pair;

		hs->probe.probe_qp[i] = (struct snt__probe_qp){ .device = pair.local,
								.remote = pair.remote };
	}
	hs->probed_ours = hs->probed_theirs = false;
	act_in_state(hs, SNT__HS_PROBE_QPS, SNT__DO_PROBE_QPS);
}

static void take_answer(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	const char *fault = snt__offer_unpack(body, length, &hs->theirs);

	if (fault) {
		snt__hs_blame(hs, SNT__MESSAGE_ANSWER, fault);
		return;
	}
	if (!schemes_fit(hs) || !pass_through_fits(hs))
		return;
	hs->mtu = snt__plan_mtu(&hs->ours, &hs->theirs);
	snt__plan_candidates(&hs->ours, &hs->theirs, &hs->trials);
	begin_round(hs);
}

static void end_round(struct snt__handshake *hs)
{
	if (!hs->probed_ours || !hs->probed_theirs)
		return;
	for (unsigned i = 0; i < hs->probe.count; i++) {
		hs->trials.trial[hs->batch[i]].ours = hs->result[i];
		hs->trials.trial[hs->batch[i]].theirs =
			hs->peer_probe.probe_qp[i].verdict;
	}
	begin_round(hs);
}

/* An answer must be about the same pairs, seen from the other end. */
static const char *mirror_fault(const struct snt__probe *ours,
				const struct snt__probe *theirs)
{
	if (ours->round != theirs->round || ours->count != theirs->count ||
	    ours->mtu != theirs->mtu)
		return "it is of another round";
	for (unsigned i = 0; i < ours->count; i++)
		if (ours->probe_qp[i].device != theirs->probe_qp[i].remote ||
		    ours->probe_qp[i].remote != theirs->probe_qp[i].device)
			return "it is about other pairs";
	return NULL;
}

static const char *probe_qps_fault(const struct snt__probe *probe)
{
	for (unsigned i = 0; i < probe->count; i++)
		if (probe->probe_qp[i].verdict == SNT__VERDICT_NONE &&
		    probe->probe_qp[i].qp_num < 2)
			return "a QP number is none";
	return NULL;
}

static void take_probing(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	const char *fault = snt__probe_unpack(body, length, &hs->peer_probe);

	if (!fault)
		fault = mirror_fault(&hs->probe, &hs->peer_probe);
	if (!fault)
		fault = probe_qps_fault(&hs->peer_probe);
	if (fault)
		snt__hs_blame(hs, SNT__MESSAGE_PROBING, fault);
	else
		act_in_state(hs, SNT__HS_PROBING, SNT__DO_PROBE);
}

static void take_probed(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	const char *fault = snt__probe_unpack(body, length, &hs->peer_probe);

	if (!fault)
		fault = mirror_fault(&hs->probe, &hs->peer_probe);
	for (unsigned i = 0; !fault && i < hs->probe.count; i++)
		if (hs->peer_probe.probe_qp[i].verdict == SNT__VERDICT_NONE)
			fault = "a verdict is missing";
	if (!fault && hs->probed_theirs)
		fault = "it has come before";
	if (fault) {
		snt__hs_blame(hs, SNT__MESSAGE_PROBED, fault);
		return;
	}
	hs->probed_theirs = true;
	end_round(hs);
}

/*
 * Trials, by the end that accepts
 */

static bool may_use(const struct snt__offer *offer, unsigned device)
{
	return device < offer->device_count && offer->devices >> device & 1;
}

static struct snt__trial *find_trial(struct snt__handshake *hs, struct snt__pair pair)
{
	for (unsigned i = 0; i < hs->trials.count; i++) {
		struct snt__trial *trial = &hs->trials.trial[i];

		if (trial->pair.local == pair.local &&
		    trial->pair.remote == pair.remote)
			return trial;
	}
	return NULL;
}

static const char *add_trial(struct snt__handshake *hs, unsigned index)
{
	const struct snt__probe_qp *probe_qp = &hs->peer_probe.probe_qp[index];
	struct snt__pair pair = { probe_qp->remote, probe_qp->device };
	struct snt__trial *trial = find_trial(hs, pair);

	if (!may_use(&hs->ours, pair.local) || !may_use(&hs->theirs, pair.remote))
		return "a device is not to be used";
	if (!trial) {
		if (hs->trials.count == SNT__PAIRS_MAX)
			return "there are too many pairs";
		trial = &hs->trials.trial[hs->trials.count++];
		trial->pair = pair;
	}
	for (unsigned i = 0; i < index; i++)
		if (hs->batch[i] == trial - hs->trials.trial)
			return "a pair is there twice";
	trial->ours = trial->theirs = SNT__VERDICT_NONE;
	hs->batch[index] = (uint8_t)(trial - hs->trials.trial);
	hs->probe.probe_qp[index] =
		(struct snt__probe_qp){ .device = pair.local, .remote = pair.remote };
	return NULL;
}

static void take_probe(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	const char *fault = snt__probe_unpack(body, length, &hs->peer_probe);

	if (!fault && (hs->peer_probe.round != hs->probe.round + 1 ||
		       hs->peer_probe.round > ROUNDS_MAX))
		fault = "it is of another round";
	if (!fault && hs->peer_probe.mtu > hs->mtu)
		fault = "its MTU is beyond what was agreed on";
	if (!fault)
		fault = probe_qps_fault(&hs->peer_probe);
	for (unsigned i = 0; !fault && i < hs->peer_probe.count; i++)
		fault = add_trial(hs, i);
	if (fault) {
		snt__hs_blame(hs, SNT__MESSAGE_PROBE, fault);
		return;
	}
	hs->probe.round = hs->peer_probe.round;
	hs->probe.count = hs->peer_probe.count;
	hs->probe.mtu = hs->mtu = hs->peer_probe.mtu;
	hs->probing = true;
	act_in_state(hs, SNT__HS_PROBE_QPS, SNT__DO_PROBE_QPS);
}

/*
 * Answers about devices
 */

void snt__handshake_probe_qps(struct snt__handshake *hs,
			      const struct snt__probe_qp *probe_qp)
{
	if (hs->state != SNT__HS_PROBE_QPS || (!hs->connects && !hs->probing))
		return;
	for (unsigned i = 0; i < hs->probe.count; i++) {
		hs->probe.probe_qp[i].verdict = probe_qp[i].verdict;
		hs->probe.probe_qp[i].qp_num = probe_qp[i].qp_num;
		hs->probe.probe_qp[i].psn = probe_qp[i].psn;
	}
	snt__hs_send(hs, hs->connects ? SNT__MESSAGE_PROBE : SNT__MESSAGE_PROBING);
	hs->state = hs->connects ? SNT__HS_PROBE : SNT__HS_PROBING;
}

void snt__handshake_probed(struct snt__handshake *hs, const uint8_t *verdict)
{
	if (hs->state != SNT__HS_PROBING || hs->probed_ours)
		return;
	memcpy(hs->result, verdict, hs->probe.count);
	if (hs->connects) {
		hs->probed_ours = true;
		end_round(hs);
		return;
	}
	for (unsigned i = 0; i < hs->probe.count; i++)
		hs->trials.trial[hs->batch[i]].ours = verdict[i];
	snt__hs_send(hs, SNT__MESSAGE_PROBED);
	hs->probing = false;
	hs->state = SNT__HS_PROBE_QPS;
}

/*
 * PLAN, CARD and READY
 */

/* The peer's QP must be on the devices that were offered, tried and planned. */
static const char *card_fault(const struct snt__handshake *hs)
{
	const struct snt_card *card = &hs->peer_card;

	if (card->lane_count != hs->plan.lane_count ||
	    card->data_lanes != hs->plan.data_lanes)
		return "its card has other lanes than were planned";
	if (card->device_count != hs->theirs.device_count)
		return "its card has other devices than were offered";
	for (unsigned i = 0; i < card->device_count; i++)
		if (memcmp(card->device[i].gid, hs->theirs.device[i].address.gid,
			   sizeof(card->device[i].gid)) ||
		    card->device[i].lid != hs->theirs.device[i].address.lid)
			return "its card has other addresses than were offered";
	for (unsigned i = 0; i < card->lane_count; i++)
		if (card->lane[i].device != hs->plan.lane[i].remote)
			return "its card has a lane on another device than was planned";
	return NULL;
}

static const char *unpack_card(struct snt__handshake *hs, const uint8_t *body,
			       size_t length)
{
	if (snt_card_unpack(body, length, &hs->peer_card))
		return "its card is malformed";
	return card_fault(hs);
}

static void take_plan(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	struct snt__plan plan;
	size_t rest = 0;
	const char *fault = snt__plan_unpack(body, length, &plan, &rest);

	if (!fault) {
		hs->plan = plan;
		for (unsigned i = 0; i < plan.lane_count; i++)
			hs->plan.lane[i] = (struct snt__pair){ plan.lane[i].remote,
							       plan.lane[i].local };
		fault = snt__plan_check(&hs->ours, &hs->theirs, &hs->trials, hs->mtu,
					&hs->plan);
	}
	if (!fault)
		fault = unpack_card(hs, body + rest, length - rest);
	if (fault)
		snt__hs_blame(hs, SNT__MESSAGE_PLAN, fault);
	else
		act_in_state(hs, SNT__HS_PLAN, SNT__DO_MAKE);
}

void snt__handshake_card(struct snt__handshake *hs, const struct snt_card *card)
{
	ssize_t length;

	if (hs->state != SNT__HS_PLAN)
		return;
	length = snt_card_pack(card, hs->card, sizeof(hs->card));
	if (length < 0) {
		snt__handshake_end(hs, SNT__END_FAILED, (int)length,
				   "our own card is malformed", NULL, 0);
		return;
	}
	hs->card_length = (size_t)length;
	snt__hs_send(hs, hs->connects ? SNT__MESSAGE_PLAN : SNT__MESSAGE_CARD);
	hs->state = SNT__HS_CARD;
}

static void take_card(struct snt__handshake *hs, const uint8_t *body, size_t length)
{
	const char *fault = unpack_card(hs, body, length);

	if (fault)
		snt__hs_blame(hs, SNT__MESSAGE_CARD, fault);
	else
		act_in_state(hs, SNT__HS_CONNECT, SNT__DO_CONNECT);
}

static void bring_handshake_up(struct snt__handshake *hs, uint64_t now)
{
	hs->ping_interval = snt__handshake_detect_ns(hs) / PING_SHARE;
	hs->ping_at = now + hs->ping_interval;
	act_in_state(hs, SNT__HS_UP, SNT__DO_UP);
}

void snt__handshake_connected(struct snt__handshake *hs, uint64_t now)
{
	if (hs->state != SNT__HS_CONNECT)
		return;
	snt__hs_send(hs, SNT__MESSAGE_READY);
	bring_handshake_up(hs, now);
}

/*
 * Which message is expected when
 */

static bool is_expected_type(const struct snt__handshake *hs, unsigned type)
{
	static const uint8_t connector[SNT__MESSAGE_TYPES] = {
		[SNT__MESSAGE_WELCOME] = 1 + SNT__HS_HELLO,
		[SNT__MESSAGE_ANSWER] = 1 + SNT__HS_OFFER,
		[SNT__MESSAGE_PROBING] = 1 + SNT__HS_PROBE,
		[SNT__MESSAGE_PROBED] = 1 + SNT__HS_PROBING,
		[SNT__MESSAGE_CARD] = 1 + SNT__HS_CARD,
		[SNT__MESSAGE_PING] = 1 + SNT__HS_UP,
		[SNT__MESSAGE_BYE] = 1 + SNT__HS_UP,
	};
	static const uint8_t acceptor[SNT__MESSAGE_TYPES] = {
		[SNT__MESSAGE_HELLO] = 1 + SNT__HS_HELLO,
		[SNT__MESSAGE_OFFER] = 1 + SNT__HS_OFFER,
		[SNT__MESSAGE_PROBE] = 1 + SNT__HS_PROBE_QPS,
		[SNT__MESSAGE_PLAN] = 1 + SNT__HS_PROBE_QPS,
		[SNT__MESSAGE_READY] = 1 + SNT__HS_CARD,
		[SNT__MESSAGE_PING] = 1 + SNT__HS_UP,
		[SNT__MESSAGE_BYE] = 1 + SNT__HS_UP,
	};

	return (hs->connects ? connector : acceptor)[type] == 1 + hs->state &&
	       !hs->probing;
}

static const char *empty_fault(unsigned type, size_t length)
{
	return type >= SNT__MESSAGE_READY && length ? "it is not empty" : NULL;
}

void snt__hs_take(struct snt__handshake *hs, const struct snt__header *header,
		  const uint8_t *message, uint64_t now)
{
	const uint8_t *body = message + SNT__HEADER_SIZE;
	const char *fault = is_expected_type(hs, header->type)
				    ? empty_fault(header->type, header->length)
				    : "it is not expected in this state";

	if (fault) {
		snt__hs_blame(hs, header->type, fault);
		return;
	}
	switch (header->type) {
	case SNT__MESSAGE_HELLO:
		take_hello(hs, header, body);
		break;
	case SNT__MESSAGE_WELCOME:
		take_welcome(hs, header, message);
		break;
	case SNT__MESSAGE_OFFER:
		take_offer(hs, body, header->length);
		break;
	case SNT__MESSAGE_ANSWER:
		take_answer(hs, body, header->length);
		break;
	case SNT__MESSAGE_PROBE:
		take_probe(hs, body, header->length);
		break;
	case SNT__MESSAGE_PROBING:
		take_probing(hs, body, header->length);
		break;
	case SNT__MESSAGE_PROBED:
		take_probed(hs, body, header->length);
		break;
	case SNT__MESSAGE_PLAN:
		take_plan(hs, body, header->length);
		break;
	case SNT__MESSAGE_CARD:
		take_card(hs, body, header->length);
		break;
	case SNT__MESSAGE_READY:
		bring_handshake_up(hs, now);
		break;
	case SNT__MESSAGE_BYE:
		snt__hs_take_bye(hs);
		break;
	default:
		break;
	}
}
