"""The mechanisms behind the promises, each with the edit that takes it out and who must notice.

Promise: every old text stands exactly once in its file (tests/test_mutation_list.py). A mechanism
that a second one covers says in `equivalent` why no test can tell that it is gone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mechanism taken out: `old` becomes `new` in `file`, and one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    equivalent: str = ""


RACES = "tests/races/test_acknowledge_against_escalate.py::"
TIMELINE = "tests/escalation/test_timeline.py::"
SYNC = "tests/escalation/test_sync.py::"
DRAIN = "tests/escalation/test_drain.py::"
POLLER = "tests/escalation/test_poller.py::"
REBUILD = "tests/escalation/test_rebuild.py::"
RECONCILE = "tests/escalation/test_reconcile.py::"
DELIVERY = "tests/escalation/test_delivery.py::"
GUARDS = "tests/disputes/test_guards.py::"
AUDIT = "tests/disputes/test_audit.py::"
ACK = "tests/disputes/test_acknowledging.py::"
MOVES = "tests/disputes/test_transitions.py::"
STORE = "tests/disputes/test_store.py::"
READY = "tests/reviewqueue/test_ready.py::"

TRANSITIONS = (
    Mutant(
        "version guard of the write",
        "disputes/transitions/rows.py",
        " WHERE d.id = new.id AND d.version = new.version - 1",
        " WHERE d.id = new.id",
        (
            RACES
            + "test_f83_an_acknowledgement_between_read_and_write_of_a_worker_is_not_overwritten",
        ),
    ),
    Mutant(
        "one source and reference, one dispute",
        "disputes/transitions/rows.py",
        "ON CONFLICT (source, reference) DO NOTHING RETURNING",
        "RETURNING",
        (STORE + "test_two_imports_of_the_same_records_at_once_store_each_once",),
    ),
    Mutant(
        "order by id of the batch",
        "disputes/transitions/deadlines.py",
        '            .order_by("pk")\n',
        "",
        equivalent="with SKIP LOCKED a batch never waits for a row, so no order can deadlock;"
        " the order keeps that true for whoever takes SKIP LOCKED out",
    ),
    Mutant(
        "skip locked rows",
        "disputes/transitions/deadlines.py",
        "select_for_update(skip_locked=True, no_key=True",
        "select_for_update(no_key=True",
        ("tests/races/test_batches.py",),
    ),
    Mutant(
        "lock the rows of the batch",
        "disputes/transitions/deadlines.py",
        '            .select_for_update(skip_locked=True, no_key=True, of=("self",))\n',
        "",
        ("tests/races/test_batches.py",),
    ),
    Mutant(
        "due again in Postgres",
        "disputes/transitions/deadlines.py",
        "among(ids).filter(due_at__lte=now)",
        "among(ids).filter(due_at__isnull=False)",
        (RACES + "test_f82_an_acknowledgement_that_commits_first_leaves_the_clock_nothing_to_do",),
    ),
    Mutant(
        "paused ladders stand still in the batch",
        "disputes/transitions/deadlines.py",
        "if paused := paused_ladders(now=now):\n        rows = rows.exclude",
        "if (paused := paused_ladders(now=now)) and not paused:\n        rows = rows.exclude",
        (
            "tests/disputes/test_ladders.py::"
            "test_a_paused_ladder_defers_its_deadlines_until_the_pause_is_over",
        ),
    ),
    Mutant(
        "the restored deadline has its old number",
        "disputes/transitions/columns.py",
        '        "deadline_no": dispute.restore_deadline_no,\n        "due_explanation"',
        '        "deadline_no": restored and dispute.deadlines_issued or None,\n'
        '        "due_explanation"',
        (MOVES + "test_a_lapsed_hold_buys_nothing",),
    ),
    Mutant(
        "the restored deadline is the old instant",
        "disputes/transitions/columns.py",
        '        "due_at": dispute.restore_due_at,\n        "due_kind"',
        '        "due_at": restored and dispute.restore_due_at + timedelta(1) or None,\n'
        '        "due_kind"',
        (MOVES + "test_a_lapsed_hold_buys_nothing",),
    ),
    Mutant(
        "time of the log never runs backwards",
        "disputes/transitions/journal.py",
        "at = now if is_new else max(now, dispute.changed_at)",
        "at = now",
        (AUDIT + "test_f49_the_time_of_an_entry_is_never_before_the_entry_before_it",),
    ),
    Mutant(
        "a broken connection needs no code",
        "disputes/transitions/attempts.py",
        "not code and isinstance(error, OperationalError)",
        "not code and False",
        (DRAIN + "test_a_connection_that_broke_without_a_code_is_nobodys_fault",),
    ),
    Mutant(
        "nobody waits for a sender's rows",
        "disputes/outbox.py",
        " AND status = 'pending' AND event = ANY(%s) FOR UPDATE SKIP LOCKED)",
        " AND status = 'pending' AND event = ANY(%s) FOR UPDATE)",
        (
            "tests/races/test_senders_that_stand_still.py::"
            "test_a_sender_that_stands_in_its_claim_holds_up_neither_the_clock_nor_a_person",
        ),
    ),
    Mutant(
        "handed back is looked at again",
        "disputes/outbox.py",
        "    messages = confirm_wanted(messages, now=now)\n",
        "",
        (
            "tests/races/test_senders_that_stand_still.py::"
            "test_what_is_handed_back_after_an_acknowledgement_is_cancelled",
        ),
    ),
    Mutant(
        "announced after the commit",
        "disputes/signals.py",
        "transaction.on_commit(send, robust=True)",
        "send()",
        ("tests/escalation/test_receivers.py",),
    ),
    Mutant(
        "nobody stands still in a transaction",
        "disputes/transitions/attempts.py",
        "            \" set_config('idle_in_transaction_session_timeout', %s, true)\",\n"
        '            [f"{LOCK_TIMEOUT_MS}ms", f"{IDLE_LIMIT_S}s"],\n',
        '            " %s",\n            [f"{LOCK_TIMEOUT_MS}ms", f"{IDLE_LIMIT_S}s"],\n',
        (
            "tests/faults/test_zombie_worker.py::"
            "test_bug_16_no_transaction_of_the_clock_or_of_a_person_may_stand_still_for_long",
        ),
    ),
    Mutant(
        "a fault of the installation is nobody's",
        "disputes/transitions/attempts.py",
        "TRANSIENT_CLASSES = _PASSING_CLASSES | _INSTALLATION_CLASSES",
        "TRANSIENT_CLASSES = _PASSING_CLASSES",
        (
            "tests/faults/test_postgres_refusing.py::"
            "test_f45_while_postgres_goes_on_refusing_nothing_is_half_written_and_nobody_is_parked",
        ),
    ),
    Mutant(
        "transient errors repeat the batch",
        "disputes/transitions/attempts.py",
        "    return code[:2] in TRANSIENT_CLASSES or (",
        "    return bool(code) and False and (",
        (
            "tests/faults/test_postgres_away.py::"
            "test_f43_a_connection_ended_in_mid_batch_rolls_the_batch_back_and_it_is_done_again",
        ),
    ),
)

REVIEWERS = (
    Mutant(
        "a lost race is tried again",
        "disputes/transitions/attempts.py",
        "        except LostRace:\n            if number == TRIES:\n                raise\n",
        "        except LostRace:\n            raise\n",
        (
            RACES
            + "test_f83_an_acknowledgement_between_read_and_write_of_a_worker_is_not_overwritten",
        ),
    ),
    Mutant(
        "the third attempt locks the row",
        "disputes/transitions/reviewing.py",
        "dispute = locked(dispute_id) if number == TRIES else unlocked(dispute_id)",
        "dispute = unlocked(dispute_id)",
        (
            RACES
            + "test_f85_escalations_that_beat_two_attempts_lose_to_the_third_which_locks_the_row",
        ),
    ),
    Mutant(
        "lock waits are bounded",
        "disputes/transitions/attempts.py",
        "            with transaction.atomic(durable=True):\n                limit_lock_waits()\n",
        "            with transaction.atomic(durable=True):\n",
        (RACES + "test_three_lock_time_outs_in_a_row_are_busy_and_nothing_is_written",),
    ),
    Mutant(
        "an acknowledgement cancels what waits",
        "disputes/transitions/reviewing.py",
        "            held(dispute, holder_id=actor.pk, now=now),\n"
        "            cancels=Notification.CANCELLED_BY_ACKNOWLEDGEMENT,\n",
        "            held(dispute, holder_id=actor.pk, now=now),\n",
        (RACES + "test_f82_an_acknowledgement_that_commits_first_leaves_the_clock_nothing_to_do",),
    ),
    Mutant(
        "what others changed is seen first",
        "disputes/transitions/reviewing.py",
        'if changed := foreign.order_by("-version").first():',
        'if (changed := foreign.order_by("-version").first()) and not changed.pk:',
        (RACES + "test_facts_that_the_source_changed_since_are_seen_before_they_are_acknowledged",),
    ),
    Mutant(
        "what the clock did since is neutral",
        "disputes/transitions/reviewing.py",
        "later.exclude(action__in=NEUTRAL_ACTIONS).exclude(actor=actor_id)",
        "later.exclude(actor=actor_id)",
        (ACK + "test_what_the_clock_did_since_is_neutral",),
    ),
    Mutant(
        "a stale page is refused",
        "disputes/transitions/reviewing.py",
        "if seen_version is not None and seen_version != dispute.version:",
        "if seen_version is not None and seen_version > dispute.version:",
        (
            "tests/reviewqueue/test_pages.py::"
            "test_text_typed_survives_a_conflict_and_is_sent_again_knowingly",
        ),
    ),
    Mutant(
        "grace for the queue it left",
        "disputes/transitions/reviewing.py",
        'settings.ESCALATION.get("ack_grace_s", 60)',
        'settings.ESCALATION.get("ack_grace_s", 0)',
        (RACES + "test_f89_people_of_the_queue_it_left_may_still_acknowledge_within_the_grace",),
    ),
    Mutant(
        "the grace ends",
        "disputes/transitions/reviewing.py",
        "if not moved_before_grace and may_review(",
        "if may_review(",
        (RACES + "test_after_the_grace_they_may_not",),
    ),
    Mutant(
        "only the holder acts on what is held",
        "disputes/transitions/reviewing.py",
        'if dispute.holder_id != actor.pk and not has_right(actor, "override_hold"):',
        "if dispute.holder_id < 0:",
        (ACK + "test_a_colleague_of_the_same_queue_may_not_act_on_what_sam_holds",),
    ),
    Mutant(
        "nobody approves their own proposal",
        "disputes/transitions/resolving.py",
        "if dispute.proposed_by_id == actor.pk:",
        "if dispute.proposed_by_id == -1:",
        (MOVES + "test_nobody_decides_on_their_own_proposal_not_even_a_superuser",),
    ),
    Mutant(
        "people act in their own queues",
        "disputes/permissions.py",
        "or Queue.objects.filter(pk=queue_id, reviewers__user=user.pk).exists()",
        "or Queue.objects.filter(pk=queue_id).exists()",
        (RACES + "test_the_seen_version_is_not_a_pass_into_a_queue_never_seen",),
    ),
    Mutant(
        "people see their own queues",
        "disputes/permissions.py",
        "queues = queues.filter(reviewers__user=user.pk)",
        "pass",
        (
            "tests/disputes/test_permissions.py::"
            "test_a_reviewer_reviews_the_queues_of_their_groups_only",
        ),
    ),
)

RECORDS = (
    Mutant(
        "every change is one version",
        "disputes/migrations/0002_guards.py",
        "WHEN (NEW.version IS DISTINCT FROM OLD.version + 1 AND NEW IS DISTINCT FROM OLD)",
        "WHEN (false)",
        (GUARDS + "test_f71_bug_53_no_column_of_a_dispute_changes_without_a_new_version",),
    ),
    Mutant(
        "every version has its audit entry",
        "disputes/migrations/0002_guards.py",
        "FOREIGN KEY (id, version) REFERENCES disputes_auditentry (dispute_id, version)\n"
        "    DEFERRABLE INITIALLY DEFERRED;",
        "CHECK (true);",
        (GUARDS + "test_a_new_version_without_its_audit_entry_fails_at_commit",),
    ),
    Mutant(
        "the log is append-only",
        "disputes/migrations/0002_guards.py",
        "UPDATE OR DELETE ON disputes_auditentry\n    FOR EACH ROW EXECUTE",
        "UPDATE OR DELETE ON disputes_auditentry\n    FOR EACH ROW WHEN (false) EXECUTE",
        (GUARDS + "test_the_owner_is_stopped_by_the_triggers",),
    ),
    Mutant(
        "what was sent is never unsaid",
        "disputes/migrations/0002_guards.py",
        "WHEN (OLD.status = 'sent' AND NEW.status <> 'sent')",
        "WHEN (false)",
        (GUARDS + "test_a_delivery_fact_is_never_unsaid",),
    ),
    Mutant(
        "a published revision is frozen",
        "disputes/migrations/0002_guards.py",
        "WHEN (OLD.state <> 'draft' AND NEW IS DISTINCT FROM OLD)",
        "WHEN (false)",
        (GUARDS + "test_a_published_revision_never_changes_not_even_for_the_owner",),
    ),
    Mutant(
        "an entry is written with its change",
        "disputes/migrations/0003_anchors.py",
        "CREATE TRIGGER entry_is_written_with_its_change AFTER INSERT ON disputes_auditentry\n"
        "    REFERENCING NEW TABLE AS written\n    FOR EACH STATEMENT EXECUTE",
        "CREATE TRIGGER entry_is_written_with_its_change AFTER INSERT ON disputes_auditentry\n"
        "    FOR EACH STATEMENT WHEN (false) EXECUTE",
        ("tests/disputes/test_tampering.py::test_an_entry_that_does_not_fit_its_row_is_refused",),
    ),
    Mutant(
        "each deadline ends once",
        "disputes/migrations/0001_records.py",
        '                condition=models.Q(("deadline_no__isnull", False)),\n'
        '                name="each_deadline_ends_at_most_once",',
        '                condition=models.Q(("deadline_no__lt", 0)),\n'
        '                name="each_deadline_ends_at_most_once",',
        (GUARDS + "test_a_deadline_ends_once",),
    ),
    Mutant(
        "one entry for each version",
        "disputes/audit.py",
        "if entry.version != expected:",
        "if entry.version < expected:",
        (
            AUDIT + "test_an_entry_removed_from_the_middle_is_named",
            AUDIT + "test_the_gap_closed_again_does_not_hide_it",
        ),
    ),
    Mutant(
        "link of the hash chain",
        "disputes/audit.py",
        "if entry.prev_hash != prev_hash:",
        "if len(entry.prev_hash) != len(prev_hash):",
        (AUDIT + "test_an_entry_altered_with_its_hash_made_anew_breaks_the_next_link",),
    ),
    Mutant(
        "hash of an entry",
        "disputes/audit.py",
        "if entry.hash != entry_hash(sealed_values(entry)):",
        "if not entry.hash:",
        (AUDIT + "test_an_altered_entry_is_named",),
    ),
    Mutant(
        "digest of a note",
        "disputes/audit.py",
        "if digest_of_note(note.salt, note.text) != entry.reason:",
        "if not note.salt:",
        (AUDIT + "test_a_note_that_was_replaced_by_another_is_named",),
    ),
    Mutant(
        "the log adds up to the row",
        "disputes/audit.py",
        "if folded[name] != value:",
        "if folded[name] != value and not name:",
        (AUDIT + "test_a_column_altered_on_the_row_alone_is_named",),
    ),
    Mutant(
        "a record is stored once",
        "disputes/intake/known.py",
        "return facts.source_hash in self._stored(facts)",
        "return False and facts.source_hash in self._stored(facts)",
        (STORE + "test_the_same_records_again_write_nothing_at_all",),
    ),
    Mutant(
        "news stored meanwhile is not applied again",
        "disputes/intake/store.py",
        "if look_up([facts]).is_repeat(facts):",
        "if look_up([]).is_repeat(facts):",
        (STORE + "test_news_that_another_import_stores_meanwhile_is_not_applied_a_second_time",),
    ),
    Mutant(
        "imports insert in one order",
        "disputes/transitions/opening.py",
        "    changes.sort(key=lambda change: (change.dispute.source, change.dispute.reference))\n",
        "",
        ("tests/races/test_batches.py",),
    ),
)

TIMELINE_MUTANTS = (
    Mutant(
        "version check of a write",
        "escalation/timeline.py",
        "if ARGV[2] == '1' or known <= version then",
        "if true then",
        (TIMELINE + "test_an_older_version_is_refused_whole",),
    ),
    Mutant(
        "fence check of a write",
        "escalation/timeline.py",
        "  local version = tonumber(ARGV[at + 3])\n"
        "  local known = math.max(whole(stored), whole(fences[i]))\n",
        "  local version = tonumber(ARGV[at + 3])\n  local known = tonumber(stored) or 0\n",
        (TIMELINE + "test_f88_the_fence_refuses_a_late_write_of_an_older_state",),
    ),
    Mutant(
        "a removal leaves a fence",
        "escalation/timeline.py",
        "  redis.call('SET', KEYS[n + 1 + i], ARGV[2 * i + 2], 'EX', ARGV[2])\n",
        "",
        (TIMELINE + "test_a_removal_takes_member_and_payload_and_leaves_a_fence",),
    ),
    Mutant(
        "version check of a removal",
        "escalation/timeline.py",
        "if ARGV[1] == '1' or known <= tonumber(ARGV[2 * i + 2]) then",
        "if true then",
        (TIMELINE + "test_a_removal_older_than_what_is_stored_is_refused",),
    ),
    Mutant(
        "lock check of a claim",
        "escalation/timeline.py",
        "redis.call('SET', locks[i], ARGV[3], 'NX', 'EX', ARGV[4])) then",
        "redis.call('SET', locks[i], ARGV[3], 'EX', ARGV[4])) or true then",
        (TIMELINE + "test_a_second_claim_is_blocked_and_counted",),
    ),
    Mutant(
        "a lock ends by itself",
        "escalation/timeline.py",
        "redis.call('SET', locks[i], ARGV[3], 'NX', 'EX', ARGV[4])) then",
        "redis.call('SET', locks[i], ARGV[3], 'NX')) then",
        (TIMELINE + "test_every_lock_has_the_token_and_a_time_to_live",),
    ),
    Mutant(
        "a repeated claim gets the same",
        "escalation/timeline.py",
        "if holders[i] == ARGV[3] or (not holders[i] and",
        "if (not holders[i] and",
        (TIMELINE + "test_the_same_token_gets_the_same_members_again",),
    ),
    Mutant(
        "paging past locked members",
        "escalation/timeline.py",
        "local stop = math.min(due, rank + tonumber(ARGV[5]))",
        "local stop = math.min(due, rank + limit)",
        (TIMELINE + "test_a_claim_pages_past_two_thousand_locked_members_in_one_call",),
    ),
    Mutant(
        "the cursor goes on behind the last",
        "escalation/drain.py",
        "cursor = None if done.changed else done.cursor",
        "cursor = None",
        ("tests/races/test_batches.py",),
    ),
    Mutant(
        "token check of a release",
        "escalation/timeline.py",
        "if holder == ARGV[1] then mine",
        "if holder then mine",
        (TIMELINE + "test_a_release_with_a_foreign_token_leaves_the_lock",),
    ),
    Mutant(
        "an old read is dropped",
        "escalation/sync.py",
        "if time.monotonic() - read_at > conf().lock_ttl_s:",
        "if read_at < 0:",
        (SYNC + "test_what_was_read_too_long_ago_is_dropped",),
    ),
    Mutant(
        "Postgres wins after a restore",
        "escalation/sync.py",
        "return sync(ahead, force=True, client=client)",
        "return sync(ahead, client=client)",
        (SYNC + "test_where_redis_is_ahead_of_a_restored_postgres_settling_lets_postgres_win",),
    ),
    Mutant(
        "a put-off dispute is looked at later",
        "escalation/sync.py",
        "score = look_at(due_at, left_out.get(pk), pause.until if pause else None)",
        "score = look_at(due_at, None, pause.until if pause else None)",
        (SYNC + "test_a_put_off_dispute_is_looked_at_when_its_pause_ends",),
    ),
    Mutant(
        "a paused ladder is off the timeline",
        "escalation/sync.py",
        "if score is not None and not stands_still:",
        "if score is not None:",
        (SYNC + "test_a_ladder_paused_without_end_is_not_on_the_timeline",),
    ),
)

CLOCK = (
    Mutant(
        "bisection finds the poison",
        "escalation/drain.py",
        "    if len(ids) == 1:\n        failures.put_off",
        "    if ids:\n        failures.put_off",
        (DRAIN + "test_a_poison_dispute_is_put_off_and_the_others_go_on",),
    ),
    Mutant(
        "put-off disputes are left out of the batch",
        "escalation/drain.py",
        "skipped = failures.left_out(list(known), now=now) if known else set()",
        "skipped: set[UUID] = set()",
        (DRAIN + "test_a_dispute_is_parked_after_the_last_attempt_and_tried_again_an_hour_later",),
    ),
    Mutant(
        "put-off disputes are left out without Redis",
        "escalation/drain.py",
        'Exists(Failure.objects.filter(pk=OuterRef("pk"), until__gt=now))',
        "Exists(Failure.objects.none())",
        (POLLER + "test_put_off_disputes_and_paused_ladders_are_left_out",),
    ),
    Mutant(
        "paused ladders are left out without Redis",
        "escalation/drain.py",
        "    if paused := paused_ladders(now=now):\n",
        "    if (paused := paused_ladders(now=now)) and not paused:\n",
        (POLLER + "test_put_off_disputes_and_paused_ladders_are_left_out",),
    ),
    Mutant(
        "what Redis has wrong is settled",
        "escalation/drain.py",
        "            settled = settle(behind)\n"
        "            changed |= settled.scheduled + settled.removed > 0\n",
        "            pass\n",
        (DRAIN + "test_a_timeline_ahead_of_a_restored_postgres_gives_way",),
    ),
    Mutant(
        "safety query",
        "escalation/poller.py",
        "            settle(unknown)\n",
        "",
        (POLLER + "test_put_off_disputes_and_paused_ladders_are_left_out",),
    ),
    Mutant(
        "a lost timeline is rebuilt",
        "escalation/poller.py",
        '                self._do_beside("rebuild", rebuild)\n',
        "                pass\n",
        (POLLER + "test_a_timeline_that_was_lost_is_rebuilt_at_the_next_sweep",),
    ),
    Mutant(
        "epoch only after an undisturbed rebuild",
        "escalation/reconcile.py",
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\nredis.call('SET', KEYS[2]",
        "redis.call('SET', KEYS[2]",
        (
            REBUILD + "test_redis_lost_at_the_very_end_leaves_no_claim_to_be_complete",
            REBUILD + "test_redis_lost_after_the_last_slice_leaves_no_claim_to_be_complete",
        ),
    ),
    Mutant(
        "one process rebuilds",
        "escalation/reconcile.py",
        "if not client.set(name.rebuild, token, nx=True, ex=conf().lock_ttl_s):",
        "if not client.set(name.rebuild, token, ex=conf().lock_ttl_s):",
        (REBUILD + "test_one_process_rebuilds_at_a_time",),
    ),
    Mutant(
        "drift needs a second look",
        "escalation/reconcile.py",
        "for id_, fault in sorted(_suspects(sorted(suspects)).items()):",
        'for id_, fault in dict.fromkeys(suspects, "missing").items():',
        (RECONCILE + "test_a_change_on_its_way_to_redis_is_no_drift",),
    ),
    Mutant(
        "the poller promotes without Redis",
        "escalation/poller.py",
        "        drain_postgres(budget_s=conf().poll_interval_s, stop=self.stop)\n",
        "",
        (POLLER + "test_f14_with_another_layout_the_poller_promotes_from_postgres_and_says_why",),
    ),
    Mutant(
        "connections end before a fork",
        "escalation/worker.py",
        "        connections.close_all()\n",
        "",
        (
            "tests/faults/test_postgres_tls.py::"
            "test_bug_51_jobs_succeed_beside_a_parent_that_reads_and_after_connections_were_ended",
        ),
    ),
    Mutant(
        "no trouble ends the poller's loop",
        "escalation/poller.py",
        "            except Exception:\n                trouble += 1\n",
        "            except ZeroDivisionError:\n                trouble += 1\n",
        (POLLER + "test_no_trouble_at_any_place_ends_the_loop",),
    ),
    Mutant(
        "long work beside the looks",
        "escalation/poller.py",
        "        self._beside = {}\n",
        "",
        (
            "tests/faults/test_kill_poller.py::"
            "test_no_deadline_and_no_stop_waits_for_a_rebuild_or_a_reconcile",
        ),
    ),
    Mutant(
        "a look asks Redis briefly first",
        "escalation/poller.py",
        '            timeline_client("batch").ping()\n',
        "",
        (
            "tests/faults/test_redis_away.py::"
            "test_f21_a_look_at_a_hanging_redis_does_not_cost_a_workers_patience",
        ),
    ),
    Mutant(
        "one process takes a duty's turn",
        "escalation/poller.py",
        "DutyTurn.objects.filter(is_due, name=name).update(",
        "DutyTurn.objects.filter(name=name).update(",
        (POLLER + "test_one_process_an_interval_gets_the_turn_of_a_duty",),
    ),
    Mutant(
        "few jobs wait",
        "escalation/doorbell.py",
        "MOST_WAITING = 4",
        "MOST_WAITING = 10_000",
        (
            POLLER + "test_ten_looks_at_the_same_deadlines_ring_no_more_than_a_few",
            "tests/escalation/test_doorbell.py::test_however_often_and_much_is_asked_for_few_wait",
        ),
    ),
    Mutant(
        "jobs are JSON",
        "config/management/commands/rqworker.py",
        'parser.set_defaults(serializer=settings.RQ_QUEUES["escalations"]["SERIALIZER"])',
        "assert settings.RQ_QUEUES",
        (
            "tests/escalation/test_doorbell.py::"
            "test_the_products_own_worker_command_does_not_unpickle_either",
        ),
    ),
    Mutant(
        "only known jobs run",
        "escalation/known_jobs.py",
        "if self.func_name not in JOBS.values() or self.instance:",
        "if not self.func_name:",
        ("tests/escalation/test_known_jobs.py::test_a_planted_job_does_not_run",),
    ),
)

MESSAGES = (
    Mutant(
        "wanted is asked again before sending",
        "escalation/delivery.py",
        "wanted = outbox.confirm_wanted(part, now=database_now())",
        "wanted = list(part)",
        (DELIVERY + "test_what_the_dispute_no_longer_wants_is_cancelled_right_before_sending",),
    ),
    Mutant(
        "the lease of a dead sender ends",
        "disputes/outbox.py",
        "    wanted = Q(status=Notification.Status.PENDING, not_before__lte=now) | Q(\n"
        "        status=Notification.Status.SENDING, claimed_at__lt=now - lease\n    )\n",
        "    wanted = Q(status=Notification.Status.PENDING, not_before__lte=now)\n",
        (DELIVERY + "test_a_sender_that_died_is_taken_over_when_its_claim_has_run_out",),
    ),
    Mutant(
        "the lease of a living sender lasts",
        "disputes/outbox.py",
        "    wanted = Q(status=Notification.Status.PENDING, not_before__lte=now) | Q(\n"
        "        status=Notification.Status.SENDING, claimed_at__lt=now - lease\n    )\n",
        "    wanted = Q(status=Notification.Status.PENDING, not_before__lte=now) | Q(\n"
        "        status=Notification.Status.SENDING, claimed_at__lt=now\n    )\n",
        (
            DELIVERY + "test_a_sender_that_died_is_taken_over_when_its_claim_has_run_out",
            DELIVERY + "test_many_messages_and_several_senders_send_each_once",
        ),
    ),
    Mutant(
        "senders skip what another has locked",
        "disputes/outbox.py",
        'Notification.objects.select_for_update(skip_locked=True, of=("self",)).filter(wanted)',
        "Notification.objects.filter(wanted)",
        (
            "tests/races/test_batches.py::"
            "test_a_sender_passes_over_messages_that_another_is_claiming",
        ),
    ),
    Mutant(
        "the idempotency key stays",
        "escalation/delivery.py",
        "idempotency_key=message.idempotency_key,\n        event=",
        'idempotency_key=f"{message.idempotency_key}:{message.attempts}",\n        event=',
        (DELIVERY + "test_a_failed_send_is_tried_again_later_with_the_same_key",),
    ),
    Mutant(
        "only the claim that failed says so",
        "disputes/outbox.py",
        "                status=Notification.Status.SENDING,\n"
        "                claimed_at=message.claimed_at,\n            )\n            .first()",
        "            )\n            .first()",
        (DELIVERY + "test_a_late_failure_does_not_take_back_what_another_sender_sent",),
    ),
    Mutant(
        "an unwanted message is not tried again",
        "disputes/outbox.py",
        "        if not still_wanted(current):\n            current.status",
        "        if not current.pk:\n            current.status",
        (RACES + "test_a_failed_send_after_the_acknowledgement_is_not_tried_again",),
    ),
    Mutant(
        "no transaction while sending",
        "escalation/delivery.py",
        "        if claimed:\n            run.send(claimed)\n",
        "        if claimed:\n"
        "            with transaction.atomic():\n                run.send(claimed)\n",
        equivalent="the marks of a send are durable transactions of their own, which Django"
        " refuses inside another one: no message could be marked at all",
    ),
    Mutant(
        "who was deactivated gets nothing",
        "disputes/outbox.py",
        "get_user_model().objects.filter(pk__in=people, is_active=True)",
        "get_user_model().objects.filter(pk__in=people)",
        (DELIVERY + "test_a_reviewer_who_left_gets_nothing_and_the_outbox_says_why",),
    ),
    Mutant(
        "a person's minute has a limit",
        "escalation/allowance.py",
        "granted = min(wanted, max(limit - len(used), 0))",
        "granted = wanted",
        (
            "tests/escalation/test_delivery_storms.py::"
            "test_f61_in_no_sixty_seconds_is_the_limit_exceeded",
        ),
    ),
    Mutant(
        "no address of the inner network is called",
        "escalation/outbound.py",
        "    if address.is_multicast or address.is_reserved or not address.is_global:\n"
        "        return False\n",
        "",
        (
            "tests/escalation/test_webhooks.py::"
            "test_f147_bug_60_no_address_of_this_machine_or_the_inner_network_is_called",
        ),
    ),
)

READY_MUTANTS = (
    Mutant(
        "fence of the ready queue",
        "reviewqueue/ready_set.py",
        "tonumber(version) >= math.max(tonumber(known) or 0, fence) then",
        "tonumber(version) >= (tonumber(known) or 0) then",
        (READY + "test_an_old_write_never_undoes_a_newer_one",),
    ),
    Mutant(
        "reservation of take next",
        "reviewqueue/ready_set.py",
        "elseif redis.call('SET', key, ARGV[2], 'NX', 'EX', ARGV[3]) then",
        "elseif redis.call('SET', key, ARGV[2], 'EX', ARGV[3]) then",
        (
            READY + "test_what_another_is_taking_is_left_to_them_and_the_next_is_given",
            READY + "test_f95_eight_people_at_once_take_exactly_the_first_eight_of_a_queue",
        ),
    ),
    Mutant(
        "a reservation is given back by its token",
        "reviewqueue/ready_set.py",
        "if redis.call('GET', key) == ARGV[1] then redis.call('DEL', key) end",
        "redis.call('DEL', key)",
        (READY + "test_a_late_release_leaves_the_reservation_of_the_next_taker",),
    ),
    Mutant(
        "sets that lost their beginning are not believed",
        "reviewqueue/ready_set.py",
        "if redis.call('GET', KEYS[1]) == ARGV[1] .. ' ' .. run then return 1 end\nreturn 0",
        "return 1",
        (READY + "test_sets_that_lost_their_beginning_are_not_believed",),
    ),
)

MUTANTS = (
    *TRANSITIONS,
    *REVIEWERS,
    *RECORDS,
    *TIMELINE_MUTANTS,
    *CLOCK,
    *MESSAGES,
    *READY_MUTANTS,
)
