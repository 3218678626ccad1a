# shellcheck shell=bash disable=SC2034
# Once: what begun builds leave in the state bucket, and how a later build reads it. Sourced.
#
#   gs://BUCKET/RUN/zK/            state and deployment folder of zone attempt K; dropped at the end
#   gs://BUCKET/builds/RUN/zK/     deploy.lock and destroy.lock, each holding the id of the build that
#                                  took it, and results; they outlive the state, so that a deploy that
#                                  arrives after the destroy still finds that it is too late

readonly BUCKET="gs://$LUSTRUM_STATE_BUCKET"
readonly KEPT="$BUCKET/$LUSTRUM_RUN_ID/z$LUSTRUM_ZONE_ATTEMPT"
readonly MARKS="$BUCKET/builds/$LUSTRUM_RUN_ID/z$LUSTRUM_ZONE_ATTEMPT"
readonly HERE="lustrum/steps"
holder="" # set by holder_of and take
readonly PAUSE="${LUSTRUM_PAUSE_SECONDS:-20}" # between looks at something that changes slowly

# take NAME: make the marker ours. 0 we hold it; 1 another build does: $holder says which one;
# 2 the bucket gave no answer.
take() {
  printf '%s' "$LUSTRUM_BUILD_ID" > mark.txt
  gcloud storage cp --quiet --if-generation-match=0 mark.txt "$MARKS/$1.lock" 2> mark.err && return 0
  # A reply may have been lost after the object was made: then it holds our own id.
  holder_of "$1" || { cat mark.err >&2; return 2; }
  [[ "$holder" == "$LUSTRUM_BUILD_ID" ]]
}

# holder_of NAME: put the id of the build that took a marker into $holder; 1 when there is none.
holder_of() {
  holder=$(gcloud storage cat "$MARKS/$1.lock" 2> holder.err) && [[ -n "$holder" ]]
}

# take_over NAME: replace the marker of a build that is over; only one of several builds succeeds.
take_over() {
  local generation
  generation=$(gcloud storage objects describe "$MARKS/$1.lock" --format='value(generation)') || return 1
  printf '%s' "$LUSTRUM_BUILD_ID" > mark.txt
  gcloud storage cp --quiet --if-generation-match="$generation" mark.txt "$MARKS/$1.lock"
}

# is_live ID: 0 the build may still act, 1 it is over. An unknown status counts as live.
is_live() {
  local status
  status=$(gcloud builds describe "$1" --region "$LUSTRUM_LOCATION" --project "$LUSTRUM_PROJECT" \
    --format='value(status)') || return 0
  case "$status" in
    SUCCESS | FAILURE | INTERNAL_ERROR | TIMEOUT | CANCELLED | EXPIRED) return 1 ;;
    *) return 0 ;;
  esac
}

# exists URL: 0 an object is there, 1 it is not, 2 no answer.
exists() {
  gcloud storage ls "$1" > ls.out 2> ls.err && return 0
  grep -q 'matched no objects\|HTTPError 404\|not found: 404' ls.err && return 1
  cat ls.err >&2
  return 2
}

finish() {
  python3 "$HERE/result.py" "$@"
  exit 0
}

# fail_from LOG [REMAINING]: end with the class that the log's error text belongs to.
fail_from() {
  local verdict
  verdict=$(python3 "$HERE/classify.py" "$1")
  finish failed "$(field class <<< "$verdict")" "$(field message <<< "$verdict")" "${2:-[]}"
}

field() {
  python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}
