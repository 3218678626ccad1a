# A named database: (default) may already be taken, and cannot be deleted and made again at once.
resource "google_firestore_database" "ledger" {
  name                        = "lustrum"
  location_id                 = var.region
  type                        = "FIRESTORE_NATIVE"
  concurrency_mode            = "OPTIMISTIC"
  app_engine_integration_mode = "DISABLED"

  # Records live 31 days and what lasts is in the reports. The provider's default (ABANDON) would
  # leave the database behind, and the next apply would fail on its name.
  delete_protection_state = "DELETE_PROTECTION_DISABLED"
  deletion_policy         = "DELETE"

  depends_on = [google_project_service.api]
}

# Records and their events go 31 days after the run's end.
resource "google_firestore_field" "expiry" {
  for_each = toset(["runs", "events"])

  database   = google_firestore_database.ledger.name
  collection = each.value
  field      = "expire_at"

  ttl_config {}
  index_config {} # a timestamp that only grows makes a hot index, and nothing queries by it
}

# Whole records as JSON text: an index of them would only cost.
resource "google_firestore_field" "text" {
  for_each = { runs = "record", events = "event" }

  database   = google_firestore_database.ledger.name
  collection = each.key
  field      = each.value

  index_config {}
}
